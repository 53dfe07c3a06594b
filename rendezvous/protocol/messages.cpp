#include "rendezvous/protocol/messages.hpp"

namespace ddprun::protocol {

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
