#pragma once
// NoticeFile: owns the file in which workers of any language find a notice of preemption (DDPRUN_PREEMPT_FILE). It is
// empty until then. It is memory of this process, as ErrorFile. Owned by WorkerSpecBuilder; one thread.

#include <cstddef>
#include <string>
#include <utility>

#include "common/error.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

inline constexpr const char* kNoticeFileVariable = "DDPRUN_PREEMPT_FILE";

class NoticeFile {
public:
    /// Makes an empty file.
    [[nodiscard]] static Result<NoticeFile> make();

    /// Returns the path for the workers' environment, in this process's /proc entry.
    [[nodiscard]] const std::string& path() const { return path_; }
    /// Writes {"reason": TEXT, "deadline": SECONDS since 1970, or null}, in place of an earlier notice.
    [[nodiscard]] Result<void> write(const protocol::Preempt& notice);

private:
    NoticeFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

    std::string path_;
    UniqueFd fd_;
    std::size_t size_ = 0;  ///< of the longest notice so far
};

}  // namespace ddprun::agent
