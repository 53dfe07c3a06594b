// Requests to etcd's JSON gateway, and the answers of a real one (3.4.23).

#include "launcher/meeting/etcd_messages.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::launcher;
using namespace ddprun::launcher::etcd;

TEST_CASE("base64 is that of RFC 4648", "[launcher][unit]") {
    const std::vector<std::pair<std::string, std::string>> vectors{{"", ""},
                                                                   {"f", "Zg=="},
                                                                   {"fo", "Zm8="},
                                                                   {"foo", "Zm9v"},
                                                                   {"foob", "Zm9vYg=="},
                                                                   {"fooba", "Zm9vYmE="},
                                                                   {"foobar", "Zm9vYmFy"},
                                                                   {std::string("\0\xFF\xFE\x80", 4), "AP/+gA=="}};
    for (const auto& [bytes, text] : vectors) {
        CHECK(to_base64(bytes) == text);
        CHECK(from_base64(text) == bytes);
    }
    std::string all;
    for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
    for (std::size_t size = 0; size <= all.size(); ++size) {
        CHECK(from_base64(to_base64(all.substr(0, size))) == all.substr(0, size));
    }
    for (const char* wrong : {"Zg=", "Z", "Zg==Zg==", "Z===", "Zm9_", "Zm 9", "===="}) {
        CAPTURE(wrong);
        CHECK_FALSE(from_base64(wrong).has_value());
    }
}

TEST_CASE("each request is one line of JSON", "[launcher][unit]") {
    CHECK(range_request("foo") == R"({"key":"Zm9v"})");
    CHECK(claim_request("foo", "bar", std::nullopt) ==
          R"({"compare":[{"key":"Zm9v","target":"CREATE","result":"EQUAL","create_revision":"0"}],)"
          R"("success":[{"request_put":{"key":"Zm9v","value":"YmFy"}}],"failure":[{"request_range":{"key":"Zm9v"}}]})");
    CHECK_THAT(claim_request("foo", "bar", 7),
               Catch::StartsWith(
                   R"({"compare":[{"key":"Zm9v","target":"MOD","result":"EQUAL","mod_revision":"7"}],"success")"));
    CHECK(withdraw_request("foo", 7) ==
          R"({"compare":[{"key":"Zm9v","target":"MOD","result":"EQUAL","mod_revision":"7"}],)"
          R"("success":[{"request_delete_range":{"key":"Zm9v"}}]})");
    CHECK(login_request("u", "p\"") == R"({"name":"u","password":"p\""})");
}

TEST_CASE("the answers of etcd are read", "[launcher][unit]") {
    const std::string absent = R"({"header":{"cluster_id":"75","member_id":"37","revision":"1","raft_term":"2"}})";
    CHECK(parse_range(absent).value() == std::nullopt);
    const std::string present =
        R"({"header":{"revision":"3"},"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1",)"
        R"("value":"YmFy"}],"count":"1"})";
    CHECK(parse_range(present).value() == Published{"bar", 2});

    const Claim won =
        parse_claim(R"({"header":{"revision":"2"},"succeeded":true,"responses":[{"response_put":{}}]})", "v").value();
    CHECK(won.mine);
    CHECK(won.there == Published{"v", 2});
    const std::string there =
        R"({"header":{"revision":"9"},"responses":[{"response_range":{"header":{"revision":"9"},)"
        R"("kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"5","version":"1","value":"YmFy"}],"count":"1"}}]})";
    const Claim lost = parse_claim(there, "v").value();
    CHECK_FALSE(lost.mine);
    CHECK(lost.there == Published{"bar", 5});
    const Claim repeated = parse_claim(there, "bar").value();  // an earlier try whose answer was lost
    CHECK(repeated.mine);
    CHECK(repeated.there == Published{"bar", 5});
    const Claim gone = parse_claim(R"({"header":{"revision":"9"},"responses":[{"response_range":{}}]})", "v").value();
    CHECK_FALSE(gone.mine);
    CHECK(gone.there == std::nullopt);

    CHECK(parse_login(R"({"header":{},"token":"abc.9"})").value() == "abc.9");
    CHECK(parse_version(R"({"etcdserver":"3.4.23","etcdcluster":"3.4.0"})") == "3.4.23");
}

TEST_CASE("an answer of another server is malformed, and shown", "[launcher][unit]") {
    for (const char* body : {"", "<html>", "[]", "{}", R"({"header":{}})", R"({"header":{"revision":1}})",
                             R"({"header":{"revision":"1"},"kvs":[{"value":"YmFy"}]})",
                             R"({"header":{"revision":"1"},"kvs":[{"value":"=","mod_revision":"1"}]})"}) {
        CAPTURE(body);
        CHECK(parse_range(body).error().code == Errc::kMalformed);
        CHECK_THAT(parse_range(body).error().message, Catch::StartsWith("its answer is not that of etcd's v3 API: '"));
    }
    CHECK(parse_claim("{}", "v").error().code == Errc::kMalformed);
    CHECK(parse_login("{}").error().code == Errc::kMalformed);
    CHECK(parse_login("{\"token\":\"a\\r\\nHost: x\"}").error().code == Errc::kMalformed);
    CHECK(parse_version(R"({"version":"1"})") == std::nullopt);
}

TEST_CASE("refusals of etcd are distinguished", "[launcher][unit]") {
    const auto kind = [](unsigned status, const std::string& body) { return parse_failure(status, body).failure; };
    const auto grpc = [](const std::string& text, int code) {
        return R"({"error":")" + text + R"(","message":")" + text + R"(","code":)" + std::to_string(code) + "}";
    };
    CHECK(kind(400, grpc("etcdserver: authentication failed, invalid user ID or password", 3)) == Failure::kLogin);
    CHECK(kind(400, grpc("etcdserver: user name is empty", 3)) == Failure::kLogin);
    CHECK(kind(412, grpc("etcdserver: authentication is not enabled", 9)) == Failure::kLogin);
    CHECK(kind(401, grpc("etcdserver: invalid auth token", 16)) == Failure::kToken);
    CHECK(kind(403, grpc("etcdserver: permission denied", 7)) == Failure::kPermission);
    CHECK(kind(503, grpc("etcdserver: no leader", 14)) == Failure::kTryAgain);
    CHECK(kind(504, grpc("etcdserver: request timed out", 4)) == Failure::kTryAgain);
    CHECK(kind(502, "Bad Gateway") == Failure::kTryAgain);
    CHECK(kind(404, "404 page not found\n") == Failure::kNoGateway);
    CHECK(kind(400, "CommonName of client sending a request against gateway will be ignored") == Failure::kCommonName);
    CHECK(kind(405, "<html>") == Failure::kNoGateway);
    CHECK(kind(400, "Client sent an HTTP request to an HTTPS server.\n") == Failure::kWantsTls);
    CHECK(kind(400, grpc("etcdserver: duplicate key given in txn request", 3)) == Failure::kOther);
    CHECK(parse_failure(404, "404 page\x1b not found\n").text == "HTTP status 404: 404 page\\x1b not found\\x0a");
    CHECK(parse_failure(503, grpc("etcdserver: no leader", 14)).text == "etcdserver: no leader");
}
