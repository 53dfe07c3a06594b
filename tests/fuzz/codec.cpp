// Fuzz target: the decoder of one dialect. Its requests must not depend on the pieces in which the stream arrives, and
// its memory must grow with the bytes that have arrived. Input: four bytes that choose the pieces, then the stream.
// DDP_FUZZ_DIALECT: the OlderDialect that is served; kNone: the stream is modern, and its VALIDATE is not in the input.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "rendezvous/store/codec/codec.hpp"
#include "rendezvous/store/codec/wire.hpp"
#include "tests/fuzz/check.hpp"

namespace {

using namespace ddprun::store;

constexpr OlderDialect kDialect = OlderDialect::DDP_FUZZ_DIALECT;

Options options() {
    Options options;
    options.older_dialect = kDialect;
    options.keys_at_once = 2;
    options.limits.key_bytes = 1000;
    options.limits.keys_per_request = 100;
    options.limits.request_bytes = 100'000;  // values of up to 64 MiB are announced, and refused
    return options;
}

/// The decoded requests as text, to compare two runs.
std::string text_of(const Request& request) {
    std::string text(1, static_cast<char>(request.kind));
    for (const std::string_view field : {request.key, request.expected, request.value}) wire::append_bytes(text, field);
    wire::append_number(text, request.number);
    text += request.has_more_keys ? '+' : '.';
    for (const std::string_view key : request.keys) wire::append_bytes(text, key);
    for (const std::string_view value : request.values) wire::append_bytes(text, value);
    if (request.block) check(request.block->view() == request.value, "the block is another value");
    return text;
}

class Stream {
public:
    explicit Stream(const Options& options) : decoder_(options, &block_memory_) {}

    /// Feeds a copy that is freed afterwards, or receives in place where the decoder has room.
    void feed(std::string_view piece, bool in_place) {
        if (failed_) return;
        fed_ += piece.size();
        while (in_place && !piece.empty()) {
            const std::span<char> room = decoder_.room();
            const std::size_t size = std::min(room.size(), piece.size());
            if (size == 0) break;
            std::memcpy(room.data(), piece.data(), size);
            decoder_.received(size);
            piece.remove_prefix(size);
            decode();
        }
        if (piece.empty() || failed_) return;
        const std::unique_ptr<char[]> copy(new char[piece.size()]);
        std::memcpy(copy.get(), piece.data(), piece.size());
        decoder_.feed({copy.get(), piece.size()});
        decode();
    }
    [[nodiscard]] const std::string& decoded() const { return decoded_; }

private:
    void decode() {
        for (;;) {
            const auto request = decoder_.next();
            if (!request) {
                decoded_ += "error: " + request.error().message;
                failed_ = true;
                check(!decoder_.next(), "an error does not stay");
                break;
            }
            if (!*request) break;
            decoded_ += text_of(**request);
        }
        // A list needs 32 bytes of bookkeeping for each string, which has 8 on the wire; vectors double.
        check(decoder_.held_bytes() <= 16 * fed_ + 1024, "it holds more than what came accounts for");
        check(block_memory_.bytes <= 4 * fed_ + 16384, "blocks hold more than what came accounts for");
    }

    BlockMemory block_memory_;  // before the decoder that counts in it
    Decoder decoder_;
    std::size_t fed_ = 0;
    bool failed_ = false;
    std::string decoded_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::uint32_t seed = 0;
    if (size < sizeof seed) return 0;
    std::memcpy(&seed, data, sizeof seed);
    std::string input(reinterpret_cast<const char*>(data) + sizeof seed, size - sizeof seed);
    if (kDialect == OlderDialect::kNone) input.insert(0, std::string_view("\x00\xce\xf7\x85\x3c", 5));

    const Options settings = options();
    Stream whole(settings);
    whole.feed(input, false);
    Stream split(settings);
    std::minstd_rand random(seed);
    const std::size_t longest = 1 + (seed >> 8) % std::max<std::size_t>(1, 2 * input.size());
    for (std::string_view rest = input; !rest.empty();) {
        const std::size_t piece = std::min<std::size_t>(rest.size(), 1 + random() % longest);
        split.feed(rest.substr(0, piece), seed % 2 == 1);
        rest.remove_prefix(piece);
    }
    check(whole.decoded() == split.decoded(), "the pieces change what is decoded");
    return 0;
}
