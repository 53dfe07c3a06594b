#pragma once
// Exit codes of ddprun and ddprund, as documented in docs/exit-codes.md. A failed worker's own code, or 128 plus
// its signal, is passed on instead; the verdict (its `outcome`) tells the two apart.

namespace ddprun::exit_code {

inline constexpr int kSuccess = 0;
inline constexpr int kUsage = 2;             ///< bad options, environment or arguments
inline constexpr int kInfrastructure = 69;   ///< the rendezvous or a node failed, not the user's program (EX_UNAVAILABLE)
inline constexpr int kInternal = 70;         ///< a bug of ours (EX_SOFTWARE)
inline constexpr int kOutput = 74;           ///< --help or --version could not be written (EX_IOERR)
inline constexpr int kCannotExecute = 126;   ///< the program exists but cannot be executed
inline constexpr int kProgramNotFound = 127; ///< no such program
inline constexpr int kSignalBase = 128;      ///< 128 + n: ended by signal n

}  // namespace ddprun::exit_code
