#pragma once
// ScopedFloatEnvironment: while it lives, the calling thread rounds to nearest and keeps subnormals, independently of
// the trainer's settings. A group's operations run on any thread that waits for them, and ranks that add the same
// numbers must get the same bits.

#include <cstdint>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace ddp::detail {

class ScopedFloatEnvironment {
public:
    ScopedFloatEnvironment() : before_(control()) {
        if (settings(before_) != kDefault) set_control(kDefault);
    }
    ~ScopedFloatEnvironment() {
        if (settings(before_) != kDefault) set_control(before_);
    }
    ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
    ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

private:
#if defined(__SSE2__)
    using Word = std::uint32_t;
    static constexpr Word kDefault = 0x1f80;  // of MXCSR: all exceptions masked
    static Word control() { return _mm_getcsr(); }
    static void set_control(Word word) { _mm_setcsr(word); }
    static Word settings(Word word) { return word & ~Word{0x3f}; }  // without the flags of past exceptions
#elif defined(__aarch64__)
    using Word = std::uint64_t;
    static constexpr Word kDefault = 0;  // of FPCR
    static Word control() {
        Word word = 0;
        asm volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    static void set_control(Word word) { asm volatile("msr fpcr, %0" ::"r"(word) : "memory"); }
    static Word settings(Word word) { return word; }
#else
    using Word = std::uint32_t;
    static constexpr Word kDefault = 0;
    static Word control() { return kDefault; }
    static void set_control(Word /*word*/) {}
    static Word settings(Word word) { return word; }
#endif

    const Word before_;
};

}  // namespace ddp::detail
