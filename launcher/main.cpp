// ddprun: starts, connects, watches and restarts data-parallel training. All of it is in the launcher library and below.

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/exit_codes.hpp"
#include "common/standard_fds.hpp"
#include "launcher/launch.hpp"

int main(int argc, char** argv) {
    ddprun::open_standard_fds();
    try {
        return ddprun::launcher::launch(std::vector<std::string>(argv + 1, argv + argc));
    } catch (const ddprun::ErrorException& failure) {
        fmt::print(stderr, "ddprun: {}\n", failure.what());
        return ddprun::exit_code::kInfrastructure;
    } catch (const std::exception& bug) {
        fmt::print(stderr, "ddprun: internal error: {}. Please report it with the command line.\n", bug.what());
        return ddprun::exit_code::kInternal;
    }
}
