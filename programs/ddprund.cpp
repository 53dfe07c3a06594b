// ddprund: the rendezvous daemon. Everything but this function is a library, and tested as one.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "common/exit_codes.hpp"
#include "common/logging.hpp"
#include "programs/programs.hpp"
#include "rendezvous/daemon/program.hpp"
#include "rendezvous/daemon/startup.hpp"
#include "rendezvous/daemon/store_program.hpp"

int ddprun::ddprund_main(int argc, char** argv) {
    try {
        const auto parsed = daemon::parse_options(argc, argv);
        if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
        const bool on_terminal = ::isatty(STDERR_FILENO) == 1;
        // A stuck terminal must not stop the heartbeats.
        init_logging("ddprund", on_terminal ? LineStart::kTag : LineStart::kTimeAndTag, StuckReader::kDropLine);
        daemon::prepare_process();
        const auto& options = std::get<daemon::Options>(parsed);
        return options.store ? daemon::run_store(options) : daemon::run_program(options);
    } catch (const std::exception& error) {
        std::fputs(fmt::format("ddprund: {}\n", error.what()).c_str(), stderr);  // fmt::print would throw again
        return exit_code::kInternal;
    }
}
