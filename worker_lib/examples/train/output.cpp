#include "train/output.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace train {

int print_result(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return EXIT_SUCCESS;
    fmt::print(stderr,
               "train: cannot write to stdout: {}. The result is lost. Redirect stdout to where there is room\n",
               std::strerror(errno));
    return EXIT_FAILURE;
}

}  // namespace train
