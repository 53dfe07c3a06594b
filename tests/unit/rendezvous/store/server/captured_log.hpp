#pragma once
// For the socket tests: the server's log.

#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/unit/rendezvous/store/server/server_thread.hpp"

namespace ddprun::store::test {

/// Captures the log while it lives.
class CapturedLog {
public:
    CapturedLog() : before_(spdlog::default_logger()) {
        spdlog::set_default_logger(std::make_shared<spdlog::logger>("captured", std::make_shared<Sink>(lines_)));
    }
    ~CapturedLog() { spdlog::set_default_logger(before_); }
    CapturedLog(const CapturedLog&) = delete;
    CapturedLog& operator=(const CapturedLog&) = delete;

    [[nodiscard]] std::string text() const {
        const std::lock_guard lock(lines_->mutex);
        return lines_->text;
    }
    [[nodiscard]] bool comes_to_say(const std::string& words) const {
        for (const TimePoint deadline = soon(); Clock::now() < deadline;
             std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
            if (text().find(words) != std::string::npos) return true;
        }
        return false;
    }

private:
    struct Lines {
        std::mutex mutex;
        std::string text;
    };
    /// A sink of its own instead of spdlog's: UBSan's checks of a sink's virtual calls need a free descriptor.
    struct Sink final : spdlog::sinks::sink {
        explicit Sink(std::shared_ptr<Lines> to) : lines(std::move(to)) {}
        void log(const spdlog::details::log_msg& message) override {
            const std::lock_guard lock(lines->mutex);
            lines->text.append(message.payload.data(), message.payload.size()).append("\n");
        }
        void flush() override {}
        void set_pattern(const std::string&) override {}
        void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
        std::shared_ptr<Lines> lines;
    };

    std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
    std::shared_ptr<spdlog::logger> before_;
};

}  // namespace ddprun::store::test
