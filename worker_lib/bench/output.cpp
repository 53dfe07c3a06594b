#include "worker_lib/bench/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ddp::bench {

void Output::write(const std::string& text) {
    if (failed_ || (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0)) return;
    failed_ = true;
    fmt::print(stderr,
               "ddp-bench: cannot write to stdout: {}. The output is lost. Redirect stdout to where there is room\n",
               std::strerror(errno));
}

std::string JsonFile::open(const std::string& name) {
    file_.reset(std::fopen(name.c_str(), "ae"));
    return file_ ? "" : std::strerror(errno);
}

std::string JsonFile::write(const std::string& text) {
    // A pipe or a device cannot be truncated: EINVAL.
    const bool emptied = ::ftruncate(::fileno(file_.get()), 0) == 0 || errno == EINVAL;
    const bool written = emptied && std::fputs(text.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0;
    if (!written) return std::strerror(errno);
    return std::fclose(file_.release()) == 0 ? "" : std::strerror(errno);
}

}  // namespace ddp::bench
