#include "common/logging.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "common/system/unique_fd.hpp"
#include "common/text/words.hpp"

namespace ddprun {
namespace {

/// Sink to stderr that never blocks its writer. It opens the terminal or pipe again, because O_NONBLOCK belongs to the
/// open file description, which other processes share.
class DroppingSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
    DroppingSink() {
        struct stat what {};
        const bool can_block = ::fstat(STDERR_FILENO, &what) == 0 && (S_ISFIFO(what.st_mode) || S_ISCHR(what.st_mode));
        if (can_block) own_ = UniqueFd(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    }

private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        if (dropped_ > 0)
            fmt::format_to(std::back_inserter(line), "[… {} lines are missing here: stderr was not read]\n", dropped_);
        formatter_->format(message, line);
        const int fd = own_ ? own_.get() : STDERR_FILENO;
        // A pipe takes a line of up to PIPE_BUF bytes whole or not at all. Other errors cannot be reported anywhere.
        const bool stuck = ::write(fd, line.data(), line.size()) < 0 && errno == EAGAIN;
        dropped_ = stuck ? dropped_ + 1 : 0;
    }
    void flush_() override {}

    UniqueFd own_;  ///< invalid: stderr cannot block, or cannot be opened again (a socket)
    std::size_t dropped_ = 0;
};

void set_level_from_environment(spdlog::logger& logger) {
    const char* level = std::getenv("LOGLEVEL");
    if (level == nullptr) return;
    const std::string name = lower_case(level);
    // from_str returns `off` for an unknown word: a typing error must not silence the program.
    const auto parsed = spdlog::level::from_str(name);
    if (parsed != spdlog::level::off || name == "off") logger.set_level(parsed);
}

}  // namespace

void init_logging(const std::string& program, LineStart start, StuckReader stuck) {
    auto logger = stuck == StuckReader::kWait
                      ? spdlog::stderr_color_mt(program)
                      : std::make_shared<spdlog::logger>(program, std::make_shared<DroppingSink>());
    logger->set_pattern(std::string(log_pattern(start)) + (stuck == StuckReader::kWait ? "%^%v%$" : "%v"));
    set_level_from_environment(*logger);
    spdlog::set_default_logger(std::move(logger));
}

}  // namespace ddprun
