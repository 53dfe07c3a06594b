// ddpctl: looks at a running job. Everything but this function is a library.

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "common/exit_codes.hpp"
#include "common/logging.hpp"
#include "common/system/standard_fds.hpp"
#include "ctl/dump.hpp"
#include "ctl/options.hpp"

int main(int argc, char** argv) {
    using namespace ddprun;
    open_standard_fds();
    try {
        const auto parsed = ctl::parse_options(argc, argv);
        if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
        init_logging("ddpctl", LineStart::kTag);
        return ctl::run_dump(std::get<ctl::DumpOptions>(parsed));
    } catch (const std::exception& error) {
        std::fputs(fmt::format("ddpctl: {}\n", error.what()).c_str(), stderr);  // fmt::print would throw again
        return exit_code::kInternal;
    }
}
