#pragma once
// By which algorithms a world's all-reduces pass between nodes.

#include <cstdlib>
#include <vector>

namespace ddp::testing {

/// DDPRUN_ALLREDUCE for the worlds that are made while this lives.
class Rules {
public:
    explicit Rules(const char* text) { ::setenv("DDPRUN_ALLREDUCE", text, 1); }
    ~Rules() { ::unsetenv("DDPRUN_ALLREDUCE"); }
    Rules(const Rules&) = delete;
    Rules& operator=(const Rules&) = delete;
};

inline const std::vector<const char*> kRules{"direct:0-max", "rd:0-max", "scatter:0-max",
                                             "rd:0-16;direct:17-99;scatter:100-max"};

}  // namespace ddp::testing
