#include "worker_lib/src/native/net/group_key.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <string_view>

#include "common/fnv.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

namespace {

// Begin the text of an HMAC, so that a message that is sent back to its sender has the wrong one.
constexpr std::string_view kHello = "hello";
constexpr std::string_view kAnswer = "answer";
constexpr std::string_view kProof = "proof";

/// Returns the part of a Hello that its own HMAC covers.
std::string_view covered(const Hello& hello) {
    static_assert(offsetof(Hello, mac) + sizeof(Hello::mac) == sizeof(Hello));
    return {reinterpret_cast<const char*>(&hello), offsetof(Hello, mac)};
}

std::string_view whole(const Hello& hello) { return {reinterpret_cast<const char*>(&hello), sizeof(Hello)}; }

ddprun::Mac mac_of(const ddprun::Mac& key, std::string_view purpose, std::string_view first,
                   std::string_view second = {}) {
    std::string text;
    text.reserve(purpose.size() + first.size() + second.size());
    text.append(purpose).append(first).append(second);
    return ddprun::hmac_sha256(key, text);
}

}  // namespace

GroupKey::GroupKey(const GroupSpec& spec, const std::vector<Member>& members)
    : rank_(spec.rank), generation_(spec.generation) {
    ddprun::Fnv64 group;
    group.add(path_of(spec));
    group_ = group.value();
    const std::span secret(reinterpret_cast<const unsigned char*>(spec.secret.data()), spec.secret.size());
    std::string text = fmt::format("ddp group 1, generation {}, {}", spec.generation, path_of(spec));
    for (const Member& member : members) text.append("\n").append(encode(member));
    key_ = ddprun::hmac_sha256(secret, text);
}

Hello GroupKey::own(std::uint32_t socket) const {
    Hello hello;
    hello.rank = rank_;
    hello.generation = generation_;
    hello.group = group_;
    hello.socket = socket;
    if (::getrandom(hello.nonce.data(), hello.nonce.size(), 0) != std::ssize(hello.nonce))
        throw_errno("cannot draw a random number", errno);
    return hello;
}

bool GroupKey::names_group(const Hello& hello) const {
    const Hello known;
    return hello.magic == known.magic && hello.version == known.version && hello.generation == generation_ &&
           hello.group == group_;
}

Hello GroupKey::hello(std::uint32_t socket) const {
    Hello hello = own(socket);
    hello.mac = mac_of(key_, kHello, covered(hello));
    return hello;
}

bool GroupKey::is_hello(const Hello& hello) const {
    return names_group(hello) && ddprun::equal_macs(hello.mac, mac_of(key_, kHello, covered(hello)));
}

Hello GroupKey::answer(const Hello& hello) const {
    Hello answer = own(hello.socket);
    answer.mac = mac_of(key_, kAnswer, whole(hello), covered(answer));
    return answer;
}

bool GroupKey::is_answer(const Hello& hello, const Hello& answer) const {
    return names_group(answer) && answer.socket == hello.socket &&
           ddprun::equal_macs(answer.mac, mac_of(key_, kAnswer, whole(hello), covered(answer)));
}

ddprun::Mac GroupKey::proof(const Hello& hello, const Hello& answer) const {
    return mac_of(key_, kProof, whole(hello), whole(answer));
}

bool GroupKey::is_proof(const Hello& hello, const Hello& answer, const ddprun::Mac& proof) const {
    return ddprun::equal_macs(proof, mac_of(key_, kProof, whole(hello), whole(answer)));
}

}  // namespace ddp::detail
