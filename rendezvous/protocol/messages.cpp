#include "rendezvous/protocol/messages.hpp"

#include <cassert>

namespace ddprun::protocol {

int slots_of(const Join& join) {
    int sum = 0;
    for (const Program& program : join.programs) sum += program.slots;
    return sum;
}

const Program& program_of(const Join& join, LocalRank rank) {
    int left = number(rank);
    for (const Program& program : join.programs) {
        if (left < program.slots) return program;
        left -= program.slots;
    }
    assert(false && "the node has no such local rank");
    return join.programs.back();
}

std::string describe_end(const FailureReport& failure) {
    const bool signaled = failure.status.kind == ExitStatus::Kind::kSignaled;
    return (signaled ? "was " : "") + end_participle(failure);
}

std::string end_participle(const FailureReport& failure) {
    std::string text = participle(failure.status);
    if (failure.status.kind == ExitStatus::Kind::kExited) {  // a shell script reports the end of its program this way
        if (failure.oom == OomKill::kYes) text += ": the kernel's out-of-memory killer has killed a process of it";
        return text;
    }
    if (failure.oom == OomKill::kYes) text += " by the kernel's out-of-memory killer";
    if (failure.oom == OomKill::kMaybe) text += ", perhaps by the kernel's out-of-memory killer";
    return text;
}

}  // namespace ddprun::protocol
