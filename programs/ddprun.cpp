// ddprun: starts, connects, watches and restarts data-parallel training. Everything but this function is a library.

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/exit_codes.hpp"
#include "common/system/signals.hpp"
#include "launcher/launch.hpp"
#include "programs/programs.hpp"

int ddprun::ddprun_main(int argc, char** argv) {
    ignore_failed_writes();  // a reader of our messages that has gone must not end the job
    try {
        return launcher::launch(std::vector<std::string>(argv + 1, argv + argc));
    } catch (const ErrorException& failure) {
        std::fputs(fmt::format("ddprun: {}\n", failure.what()).c_str(), stderr);  // fmt::print would throw again
        return exit_code::kInfrastructure;
    } catch (const std::exception& bug) {
        std::fputs(
            fmt::format("ddprun: internal error: {}. Please report it with the command line.\n", bug.what()).c_str(),
            stderr);
        return exit_code::kInternal;
    }
}
