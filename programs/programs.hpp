#pragma once
// The programs that the file ddprun contains. Each is a main() that main.cpp calls by the name in argv[0].

namespace ddprun {

[[nodiscard]] int ddprun_main(int argc, char** argv);   ///< starts, connects, watches and restarts training
[[nodiscard]] int ddprund_main(int argc, char** argv);  ///< the rendezvous daemon
[[nodiscard]] int ddpctl_main(int argc, char** argv);   ///< looks at a running job, and drains its nodes

}  // namespace ddprun
