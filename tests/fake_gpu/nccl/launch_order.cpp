#include "tests/fake_gpu/nccl/launch_order.hpp"

#include <fmt/format.h>

#include <sstream>

#include "common/fnv.hpp"

namespace ddp::fake_nccl {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t own_launches, std::uint64_t others_launches) {
    ddprun::Fnv64 fnv;
    fnv.add(fmt::format("{} {} {}", hash, own_launches, others_launches));
    return fnv.value();
}

std::map<std::string, std::string> parsed(const std::string& report) {
    std::map<std::string, std::string> hashes;
    std::istringstream words(report);
    for (std::string name, hash; words >> name >> hash;) hashes[name] = hash;
    return hashes;
}

}  // namespace

LaunchOrder& LaunchOrder::of_process() {
    static auto* const order = new LaunchOrder;  // never destroyed: a program may end communicators at its exit
    return *order;
}

void LaunchOrder::add(const std::string& communicator, int device) {
    const ddprun::Lock lock(mutex_);
    devices_[device][communicator];
}

void LaunchOrder::launch(const std::string& communicator, int device) {
    const ddprun::Lock lock(mutex_);
    auto& communicators = devices_[device];
    Communicator& own = communicators[communicator];
    ++own.launches;
    for (const auto& [name, other] : communicators) {
        if (&other == &own || other.launches == 0) continue;
        std::uint64_t& hash = own.behind[name];
        hash = mixed(hash, own.launches, other.launches);
    }
}

void LaunchOrder::remove(const std::string& communicator, int device) {
    const ddprun::Lock lock(mutex_);
    devices_[device].erase(communicator);
}

std::string LaunchOrder::report(const std::string& communicator, int device) {
    const ddprun::Lock lock(mutex_);
    auto& communicators = devices_[device];
    const Communicator& own = communicators[communicator];
    std::string text;
    for (const auto& [name, other] : communicators) {
        if (&other == &own) continue;
        const auto found = own.behind.find(name);
        text += fmt::format("{} {:016x}\n", name, found == own.behind.end() ? 0 : found->second);
    }
    return text;
}

std::string different_order(const std::string& report, const std::string& other) {
    const auto own = parsed(report), theirs = parsed(other);
    for (const auto& [name, hash] : own) {
        if (const auto found = theirs.find(name); found != theirs.end() && found->second != hash) return name;
    }
    return {};
}

}  // namespace ddp::fake_nccl
