#pragma once
// SharedLines: which of several processes has left a line open on the console that they share (--local-nodes), so that
// the next one ends it before it writes. One word in shared memory for stdout and one for stderr, which are read and
// set while the lock of OutputSink is held. Owned by Console; one thread per process.

#include <atomic>
#include <cstddef>

#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

/// The view that one process has of one of the words.
class SharedLine {
public:
    SharedLine() = default;  ///< of a process that writes alone
    SharedLine(std::atomic<int>* writer, int self) : writer_(writer), self_(self) {}

    /// Returns whether another process has left a line open.
    [[nodiscard]] bool is_open_elsewhere() const {
        const int writer = writer_ != nullptr ? writer_->load() : 0;
        return writer != 0 && writer != self_;
    }
    /// Returns whether another process has ended the line that this one has left open.
    [[nodiscard]] bool was_ended_elsewhere() const { return writer_ != nullptr && writer_->load() != self_; }
    /// Notes that this process has left a line open, or has ended it.
    void set_open(bool open) {
        if (writer_ != nullptr) writer_->store(open ? self_ : 0);
    }

private:
    std::atomic<int>* writer_ = nullptr;  ///< 0: no line is open
    int self_ = 0;
};

class SharedLines {
public:
    /// Makes the memory. Returns a descriptor that children inherit (not close-on-exec); invalid: the system refuses
    /// it, and lines of several processes may continue each other.
    [[nodiscard]] static UniqueFd make();

    SharedLines() = default;
    /// Maps the memory of a descriptor, which may be closed then. `self` > 0 is different in each process.
    SharedLines(int fd, int self);
    SharedLines(SharedLines&& other) noexcept;
    SharedLines& operator=(SharedLines&&) = delete;
    ~SharedLines();

    [[nodiscard]] SharedLine of(std::size_t stream) const;

private:
    std::atomic<int>* words_ = nullptr;
    int self_ = 0;
};

}  // namespace ddprun::agent
