#include "agent/workers/step_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>

namespace ddprun::agent {

Result<StepFile> StepFile::make() {
    UniqueFd fd(::memfd_create("ddprun-step", MFD_CLOEXEC));
    if (!fd) return system_error("cannot make a file for steps in memory", errno);
    std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), fd.get());
    return StepFile(std::move(path), std::move(fd));
}

std::optional<std::uint64_t> StepFile::read() const {
    std::array<char, 24> text;  // more digits than any number has
    const ssize_t size = ::pread(fd_.get(), text.data(), text.size(), 0);
    if (size <= 0) return std::nullopt;
    std::uint64_t step = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + size, step);
    // Without a line end it may be half of a number that is being written, or the rest of a longer one may follow.
    if (problem != std::errc() || end == text.data() + size || *end != '\n') return std::nullopt;
    return step;
}

}  // namespace ddprun::agent
