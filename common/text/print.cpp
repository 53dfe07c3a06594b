#include "common/text/print.hpp"

#include <cerrno>
#include <cstdio>

namespace ddprun {

Result<void> print_to_stdout(std::string_view text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (written) return {};
    return system_error("cannot write to stdout", errno);
}

}  // namespace ddprun
