#pragma once
// ConsoleLog: sends spdlog's lines through the agent's Console instead of to stderr while it lives, so that a stuck
// terminal cannot stop the agent in the middle of a log call. Owned by Agent; one thread.

#include <spdlog/common.h>

#include <vector>

#include "agent/output/console.hpp"
#include "common/logging.hpp"

namespace ddprun::agent {

class ConsoleLog {
public:
    ConsoleLog(Console& console, LineStart start);
    ~ConsoleLog();
    ConsoleLog(const ConsoleLog&) = delete;
    ConsoleLog& operator=(const ConsoleLog&) = delete;

private:
    std::vector<spdlog::sink_ptr> before_;
};

}  // namespace ddprun::agent
