#pragma once
// ConsoleLog: while it lives, the lines of our own log go through the agent's Console instead of straight to stderr, so
// that a stuck terminal cannot stop the agent in the middle of a log call.

#include <spdlog/common.h>

#include <vector>

#include "agent/output/console.hpp"

namespace ddprun::agent {

class ConsoleLog {
public:
    explicit ConsoleLog(Console& console);
    ~ConsoleLog();
    ConsoleLog(const ConsoleLog&) = delete;
    ConsoleLog& operator=(const ConsoleLog&) = delete;

private:
    std::vector<spdlog::sink_ptr> before_;
};

}  // namespace ddprun::agent
