#pragma once
// Defines the exit codes of all programs (docs/exit-codes.md). After a worker's failure, ddprun ends with the worker's
// code, or 128 plus its signal, instead; the `outcome` of the verdict distinguishes the two.

namespace ddprun::exit_code {

inline constexpr int kSuccess = 0;
inline constexpr int kNoRecord = 1;           ///< of ddpctl dump: no rank has a flight record
inline constexpr int kDamaged = 1;            ///< of ddpctl checkpoint: the file is damaged
inline constexpr int kUsage = 2;              ///< bad options, environment or arguments
inline constexpr int kInfrastructure = 69;    ///< the rendezvous or a node failed (EX_UNAVAILABLE)
inline constexpr int kInternal = 70;          ///< a bug in ddprun (EX_SOFTWARE)
inline constexpr int kDeviceStuck = 71;       ///< of a worker: its GPU does not answer, so it ends itself
inline constexpr int kOutput = 74;            ///< requested output could not be written (EX_IOERR)
inline constexpr int kPreempted = 75;         ///< the workers stopped at a notice of preemption (EX_TEMPFAIL): requeue
inline constexpr int kDoNotRequeue = 93;      ///< of a worker: another attempt is useless, so none is made
inline constexpr int kNeverRan = 94;          ///< the job succeeded without this node, a spare that was not needed
inline constexpr int kCannotExecute = 126;    ///< the program exists but cannot be executed
inline constexpr int kProgramNotFound = 127;  ///< no such program
inline constexpr int kSignalBase = 128;       ///< 128 + n: ended by signal n

}  // namespace ddprun::exit_code
