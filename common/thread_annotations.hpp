#pragma once
// Defines clang's thread-safety annotations, which say which lock protects what. scripts/check-locks lets clang check
// them; other compilers ignore them. Reference: https://clang.llvm.org/docs/ThreadSafetyAnalysis.html

#if defined(__clang__)
#define DDPRUN_ANNOTATION(x) __attribute__((x))
#else
#define DDPRUN_ANNOTATION(x)
#endif

/// Mark a class whose objects can be locked, and one that holds such an object locked as long as it lives.
#define CAPABILITY(kind) DDPRUN_ANNOTATION(capability(kind))
#define SCOPED_CAPABILITY DDPRUN_ANNOTATION(scoped_lockable)

/// Marks a member that is read and written only while that lock is held.
#define GUARDED_BY(lock) DDPRUN_ANNOTATION(guarded_by(lock))

/// Mark a function whose caller holds the lock, or must not hold it.
#define REQUIRES(...) DDPRUN_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) DDPRUN_ANNOTATION(locks_excluded(__VA_ARGS__))

/// Mark a function that takes the lock, releases it, or takes it if it returns the first argument.
#define ACQUIRE(...) DDPRUN_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) DDPRUN_ANNOTATION(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) DDPRUN_ANNOTATION(try_acquire_capability(__VA_ARGS__))

/// Marks a lock that is taken before, or after, another one by a thread that holds both.
#define ACQUIRED_BEFORE(...) DDPRUN_ANNOTATION(acquired_before(__VA_ARGS__))
#define ACQUIRED_AFTER(...) DDPRUN_ANNOTATION(acquired_after(__VA_ARGS__))

/// Marks a function whose body is not checked. A comment beside it says why.
#define NO_THREAD_SAFETY_ANALYSIS DDPRUN_ANNOTATION(no_thread_safety_analysis)
