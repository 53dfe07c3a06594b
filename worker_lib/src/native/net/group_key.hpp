#pragma once
// GroupKey: makes and checks the three messages by which two ranks prove to each other that they belong to one group
// (docs/design/029). The connecting rank sends a Hello, the accepting one answers with a Hello, the connecting one
// sends a proof. Each contains an HMAC with the group's key over all that was sent before. Plain values; any thread.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/mac.hpp"
#include "worker_lib/src/native/protocol/member.hpp"

namespace ddp::detail {

/// First bytes on every connection, in both directions.
struct Hello {
    std::uint64_t magic = 0x6464702d68656c6fULL;  // "ddp-helo"; refuses other programs, and another byte order
    std::uint32_t version = kProtocolVersion;
    std::int32_t rank = 0;
    std::int64_t generation = 0;
    std::uint64_t group = 0;                ///< hash of the group's name
    std::array<unsigned char, 16> nonce{};  ///< random: the challenge to the receiver
    std::uint32_t socket = 0;               ///< which of several to the same peer
    std::uint32_t unused = 0;
    ddprun::Mac mac{};  ///< shows that the sender has the group's key
};
static_assert(sizeof(Hello) == 88);

class GroupKey {
public:
    GroupKey() = default;
    /// The key is derived from the secret of the worker group, if there is one, and in any case from all records, by
    /// rank, which readers of the store know. A writer of the store that gives two ranks different records, to be
    /// between them, gives them different keys.
    GroupKey(const GroupSpec& spec, const std::vector<Member>& members);

    /// Returns the first message of a connecting rank, with a new nonce. Throws Error{System}.
    [[nodiscard]] Hello hello(std::uint32_t socket = 0) const;
    /// Returns whether `hello` is a first message of a rank of this group and generation. It may be a replayed one.
    [[nodiscard]] bool is_hello(const Hello& hello) const;

    /// Returns the answer of an accepting rank to `hello`, with a new nonce. Throws Error{System}.
    [[nodiscard]] Hello answer(const Hello& hello) const;
    /// Returns whether `answer` was made for our `hello`.
    [[nodiscard]] bool is_answer(const Hello& hello, const Hello& answer) const;

    /// Returns the last message of a connecting rank.
    [[nodiscard]] ddprun::Mac proof(const Hello& hello, const Hello& answer) const;
    /// Returns whether `proof` was made for our `answer` to `hello`.
    [[nodiscard]] bool is_proof(const Hello& hello, const Hello& answer, const ddprun::Mac& proof) const;

private:
    [[nodiscard]] Hello own(std::uint32_t socket) const;
    [[nodiscard]] bool names_group(const Hello& hello) const;

    ddprun::Mac key_{};
    int rank_ = 0;
    std::int64_t generation_ = 0;
    std::uint64_t group_ = 0;
};

}  // namespace ddp::detail
