#include "agent/workers/notice_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <optional>

namespace ddprun::agent {

Result<NoticeFile> NoticeFile::make() {
    UniqueFd fd(::memfd_create("ddprun-notice", MFD_CLOEXEC));
    if (!fd) return system_error("cannot make a file for notices of preemption in memory", errno);
    std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), fd.get());
    return NoticeFile(std::move(path), std::move(fd));
}

Result<void> NoticeFile::write(const protocol::Preempt& notice) {
    std::optional<double> deadline;
    if (notice.time_left) {
        const std::chrono::duration<double> at =
            std::chrono::system_clock::now().time_since_epoch() + *notice.time_left;
        deadline = at.count();
    }
    const boost::json::object object{{"reason", notice.reason},
                                     {"deadline", deadline ? boost::json::value(*deadline) : nullptr}};
    std::string text = boost::json::serialize(object);
    text.resize(std::max(text.size(), size_), ' ');  // so that no end of a longer notice is left, at any moment
    size_ = text.size();
    text += '\n';
    if (::pwrite(fd_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
        return system_error("cannot write the notice of preemption", errno);
    return {};
}

}  // namespace ddprun::agent
