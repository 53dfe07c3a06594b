#include "agent/workers/step_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>

namespace ddprun::agent {

Result<StepFile> StepFile::make() {
    UniqueFd fd(::memfd_create("ddprun-step", MFD_CLOEXEC));
    if (!fd) return system_error("cannot make a file for steps in memory", errno);
    std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), fd.get());
    return StepFile(std::move(path), std::move(fd));
}

std::optional<std::uint64_t> StepFile::read() const {
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) return std::nullopt;
    std::array<char, 64> bytes;  // the last line, and a part of the next one that is being written
    const off_t from = std::max<off_t>(0, status.st_size - static_cast<off_t>(bytes.size()));
    const ssize_t size = ::pread(fd_.get(), bytes.data(), bytes.size(), from);
    std::string_view text(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(0, size)));
    const auto line_end = text.rfind('\n');
    if (line_end == std::string_view::npos) return std::nullopt;
    text = text.substr(0, line_end);
    if (const auto before = text.rfind('\n'); before != std::string_view::npos)
        text.remove_prefix(before + 1);
    else if (from > 0)
        return std::nullopt;  // no number is as long
    std::uint64_t step = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), step);
    if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return step;
}

}  // namespace ddprun::agent
