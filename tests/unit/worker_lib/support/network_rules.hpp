#pragma once
// Sets the algorithms of a world's all-reduces between nodes, and the number of sockets.

#include <cstdlib>
#include <vector>

namespace ddp::testing {

/// During its lifetime sets an environment variable for the worlds that are made.
class Variable {
public:
    Variable(const char* name, const char* text) : name_(name) { ::setenv(name, text, 1); }
    ~Variable() { ::unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

private:
    const char* const name_;
};

struct Rules : Variable {
    explicit Rules(const char* text) : Variable("DDPRUN_ALLREDUCE", text) {}
};
struct SocketsPerPeer : Variable {
    explicit SocketsPerPeer(const char* text) : Variable("DDPRUN_SOCKETS_PER_PEER", text) {}
};

inline const std::vector<const char*> kRules{"direct:0-max", "rd:0-max", "scatter:0-max",
                                             "rd:0-16;direct:17-99;scatter:100-max"};

}  // namespace ddp::testing
