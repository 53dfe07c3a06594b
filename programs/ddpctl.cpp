// ddpctl: looks at a running job, and drains its nodes. Everything but this function is a library.

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "common/exit_codes.hpp"
#include "common/logging.hpp"
#include "common/overloaded.hpp"
#include "ctl/checkpoint.hpp"
#include "ctl/dump.hpp"
#include "ctl/options.hpp"
#include "ctl/orders.hpp"
#include "programs/programs.hpp"

int ddprun::ddpctl_main(int argc, char** argv) {
    try {
        const auto parsed = ctl::parse_options(argc, argv);
        init_logging("ddpctl", LineStart::kTag);
        return std::visit(Overloaded{
                              [](const ctl::StatusOptions& options) { return ctl::run_status(options); },
                              [](const ctl::DumpOptions& options) { return ctl::run_dump(options); },
                              [](const ctl::OrderOptions& options) { return ctl::run_order(options); },
                              [](const ctl::CheckpointOptions& options) { return ctl::run_checkpoint(options); },
                              [](int code) { return code; },
                          },
                          parsed);
    } catch (const std::exception& error) {
        std::fputs(fmt::format("ddpctl: {}\n", error.what()).c_str(), stderr);  // fmt::print would throw again
        return exit_code::kInternal;
    }
}
