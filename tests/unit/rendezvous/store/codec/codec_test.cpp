// The decoder alone: dialects, pieces, memory and bad input.
#include "rendezvous/store/codec/codec.hpp"

#include <malloc.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"

namespace ddprun::store::test {
namespace {

using enum RequestKind;

const Options kDefaults;

Options with_older(OlderDialect older) {
    Options options;
    options.older_dialect = older;
    return options;
}

/// Returns the first request of a connection that sends `bytes`; the error's code if it is refused.
struct First {
    std::optional<Request> request;
    boost::system::error_code error;
};
First first_of(Decoder& decoder, std::string_view bytes) {
    decoder.feed(bytes);
    auto next = decoder.next();
    if (!next) return {std::nullopt, next.error().code};
    return {*next, {}};
}

boost::system::error_code error_of(std::string_view bytes, const Options& options = {}) {
    Decoder decoder(options);
    return first_of(decoder, bytes).error;
}

TEST_CASE("R4: a connection that begins with VALIDATE is modern") {
    Decoder decoder(kDefaults);
    const std::string bytes = validate() + request(1, "/a", "hello");
    const auto first = first_of(decoder, bytes);
    REQUIRE(first.request);
    CHECK(first.request->kind == kSet);
    CHECK(first.request->key == "/a");
    CHECK(first.request->value == "hello");
}

TEST_CASE("R4: a first byte other than 0 makes a connection old") {
    Decoder decoder(kDefaults);
    const auto first = first_of(decoder, request(3, "init/", std::int64_t{1}));
    REQUIRE(first.request);
    CHECK(first.request->kind == kAdd);
    CHECK(first.request->number == 1);
}

TEST_CASE("R4: a 0 that the magic number does not follow is an old SET") {
    Decoder decoder(kDefaults);
    const std::string bytes = request(0, "/a", "hello");
    CHECK_FALSE(first_of(decoder, bytes.substr(0, 4)).request);  // undecided as yet
    const auto first = first_of(decoder, bytes.substr(4));
    REQUIRE(first.request);
    CHECK(first.request->kind == kSet);
    CHECK(first.request->value == "hello");
}

TEST_CASE("R4: without an older dialect, a connection that does not begin with VALIDATE is refused") {
    const Options modern_only = with_older(OlderDialect::kNone);
    CHECK(error_of(request(3, "init/", std::int64_t{1}), modern_only) == Errc::kMalformed);
    CHECK(error_of(request(0, "/a", "hello"), modern_only) == Errc::kMalformed);
    CHECK(error_of(hex("00cef7853d"), modern_only) == Errc::kMalformed);
    CHECK(error_of(validate(), modern_only) == boost::system::error_code{});
}

TEST_CASE("R4: the setting decides what code 8 of an older dialect means") {
    const Options v1_13 = with_older(OlderDialect::kV1_13);
    Decoder old(v1_13);
    CHECK(first_of(old, request(8, "/a")).request->kind == kDeleteKey);
    const Options v2_1 = with_older(OlderDialect::kV2_1);
    Decoder newer(v2_1);
    CHECK(first_of(newer, request(8, "/a", "!")).request->kind == kAppend);
    CHECK(first_of(newer, request(7, "/a")).request->kind == kDeleteKey);
    CHECK(first_of(newer, request(11)).request->kind == kCancelWait);
}

TEST_CASE("R3: an announced length reserves no memory") {
    const auto held = [] {
        const auto info = ::mallinfo2();
        return info.uordblks + info.hblkhd;
    };
    std::vector<Decoder> decoders(100, Decoder(kDefaults));
    const std::size_t before = held();
    std::string frame = validate() + request(1, "/a");
    wire::append_number<std::uint64_t>(frame, 60u << 20);
    frame += "four";
    for (Decoder& decoder : decoders) CHECK_FALSE(first_of(decoder, frame).request);
    CHECK(held() < before + (1u << 20));
}

TEST_CASE("lengths and counts above the limits are refused before their bytes arrive") {
    const auto announce = [](int code, std::uint64_t size) {
        std::string out = validate() + request(code);
        wire::append_number(out, size);
        return out;
    };
    const std::uint64_t absurd = GENERATE(std::uint64_t{1} << 62, ~std::uint64_t{0}, std::uint64_t{1} << 63);
    CAPTURE(absurd);
    for (const RequestKind kind : {kSet, kCompareSet, kGet, kAdd, kCheck, kWait, kDeleteKey, kAppend, kMultiGet,
                                   kMultiSet, kQueuePush, kQueuePop, kQueueLength, kBarrier}) {
        CAPTURE(static_cast<int>(kind));
        CHECK(error_of(announce(static_cast<int>(kind), absurd)) == Errc::kLimit);
    }
    std::string value = validate() + request(1, "/a");
    wire::append_number(value, absurd);
    CHECK(error_of(value) == Errc::kLimit);
    CHECK(error_of(announce(0, absurd).substr(5), with_older(OlderDialect::kV1_13)) == Errc::kLimit);
}

TEST_CASE("R15: a request exactly at a limit passes, one byte or key more does not") {
    Options options;
    options.limits.key_bytes = 8;
    options.limits.value_bytes = 16;
    options.limits.keys_per_request = 3;
    const std::string key(8, 'k');
    const std::string value(16, 'v');
    const auto passes = [&](const std::string& bytes) { return !error_of(validate() + bytes, options); };
    CHECK(passes(request(kSet, key, value)));
    CHECK_FALSE(passes(request(kSet, key + 'k', value)));
    CHECK_FALSE(passes(request(kSet, key, value + 'v')));
    CHECK_FALSE(passes(request(kCompareSet, key, value + 'v', value)));
    CHECK_FALSE(passes(request(kCompareSet, key, value, value + 'v')));
    CHECK(passes(request(kWait, Keys{key, key, key})));
    CHECK_FALSE(passes(request(kWait, Keys{key, key, key, key})));
    CHECK_FALSE(passes(request(kWait, Keys{key + 'k'})));
    CHECK(passes(request(kMultiSet, Pairs{{key, value}, {key, value}})));
    CHECK_FALSE(passes(request(kMultiSet, Pairs{{key, value}, {key, value + 'v'}})));
    CHECK_FALSE(passes(request(kMultiSet, Pairs{{key, value}, {key + 'k', value}})));
    options.limits.request_bytes = 60;
    CHECK(passes(request(kMultiSet, Pairs{{key, "v"}})));
    CHECK_FALSE(passes(request(kMultiSet, Pairs{{key, value}, {key, value}})));
}

TEST_CASE("R15: the default limits let PyTorch's own largest requests pass") {
    const Keys many(131072, "/k");
    CHECK(error_of(validate() + request(kWait, many)) == boost::system::error_code{});
    const std::string big = request(kSet, std::string(8192, 'k'), std::string(std::size_t{8} << 20, 'v'));
    Decoder decoder(kDefaults);
    const std::string bytes = validate() + big;
    const auto first = first_of(decoder, bytes);
    REQUIRE(first.request);
    CHECK(first.request->value.size() == std::size_t{8} << 20);
}

TEST_CASE("a code that no request has is refused, in each dialect, and stays refused") {
    for (int code = 0; code < 256; ++code) {
        CAPTURE(code);
        const std::string bytes(1, static_cast<char>(code));
        const bool modern = code >= 1 && code <= 18;  // 0: a second VALIDATE
        CHECK(error_of(validate() + bytes + std::string(4, 'x')) ==
              (modern ? boost::system::error_code{} : Errc::kMalformed));
        const bool old = code <= 8 && code != 7;
        CHECK(error_of(bytes) == (old ? boost::system::error_code{} : Errc::kMalformed));
    }
    Decoder decoder(kDefaults);
    CHECK(first_of(decoder, "GET / HTTP/1.1\r\n").error == Errc::kMalformed);
    CHECK(first_of(decoder, request(3, "init/", std::int64_t{1})).error == Errc::kMalformed);
}

TEST_CASE("a MULTI_GET of many keys is returned in parts, and is not copied between them") {
    Options options;
    options.keys_at_once = 2;
    const std::string all = validate() + request(kMultiGet, Keys{"/a", "/b", "/c", "/d", "/e"}) +
                            request(kMultiGet, Keys{"/f", "/g"}) + request(kWait, Keys{"/h", "/i", "/j"});
    const std::size_t cut = GENERATE(std::size_t{0}, std::size_t{5}, std::size_t{30});
    Decoder decoder(options);
    std::string fed = all.substr(0, cut);
    decoder.feed(fed);
    REQUIRE_FALSE(decoder.next().value());
    fed.assign(fed.size(), '?');
    std::string rest = all.substr(cut);
    decoder.feed(rest);
    std::string seen;
    for (auto next = decoder.next().value(); next; next = decoder.next().value()) {
        for (const std::string_view key : next->keys) seen += key;
        seen += next->has_more_keys ? " + " : " ; ";
        decoder.keep();
        rest.assign(rest.size(), '?');
    }
    CHECK(seen == "/a/b + /c/d + /e ; /f/g ; /h/i/j ; ");
    CHECK_FALSE(decoder.inside_request());
}

TEST_CASE("the memory that a large request needed is freed after it") {
    const Pairs pairs(20'000, {"/key", "value"});
    const std::string all = validate() + request(kMultiSet, pairs) + request(kGet, "/a");
    Decoder decoder(kDefaults);
    std::size_t requests = 0;
    for (std::size_t at = 0; at < all.size(); at += 65536) {
        const std::string piece = all.substr(at, 65536);
        decoder.feed(piece);
        while (decoder.next().value()) ++requests;
    }
    CHECK(requests == 2);
    CHECK(decoder.held_bytes() < 1024);
}

TEST_CASE("a truncated request is not returned") {
    const std::string whole = validate() + request(kMultiSet, Pairs{{"/a", "1"}, {"/b", ""}});
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        Decoder decoder(kDefaults);
        const auto first = first_of(decoder, whole.substr(0, size));
        CHECK_FALSE(first.request);
        CHECK_FALSE(first.error);
        CHECK(decoder.inside_request() == (size != 0 && size != validate().size()));
    }
}

TEST_CASE("keys are any bytes: empty, with zeros, with slashes") {
    Decoder decoder(kDefaults);
    const std::string odd("/\0\n-", 4);
    const std::string bytes = validate() + request(kCheck, Keys{"", odd});
    const auto first = first_of(decoder, bytes);
    REQUIRE(first.request);
    REQUIRE(first.request->keys.size() == 2);
    CHECK(first.request->keys[0].empty());
    CHECK(first.request->keys[1] == odd);
}

TEST_CASE("a request of many keys in single bytes costs no more than the bytes") {
    // Scanning each time from the start would take 131072² / 2 steps, and this test its whole timeout.
    const std::string bytes = validate() + request(kWait, Keys(131072, ""));
    Decoder decoder(kDefaults);
    std::optional<Request> got;
    for (const char byte : bytes) got = first_of(decoder, std::string_view(&byte, 1)).request;
    REQUIRE(got);
    CHECK(got->keys.size() == 131072);
}

}  // namespace
}  // namespace ddprun::store::test
