#include "launcher/meeting/daemon_record.hpp"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <limits>

#include "common/text/escape.hpp"

namespace ddprun::launcher {
namespace {

constexpr int kRecordVersion = 1;
constexpr std::size_t kMaxShownBytes = 100;

std::string text_of(const boost::json::object& record, std::string_view key) {
    const boost::json::value* member = record.if_contains(key);
    return member != nullptr && member->is_string() ? std::string(member->get_string()) : "";
}

int int_of(const boost::json::object& record, std::string_view key) {
    const boost::json::value* member = record.if_contains(key);
    const bool fits = member != nullptr && member->is_int64() && member->get_int64() > 0 &&
                      member->get_int64() <= std::numeric_limits<int>::max();
    return fits ? static_cast<int>(member->get_int64()) : 0;
}

}  // namespace

std::string to_json(const DaemonRecord& record) {
    return boost::json::serialize(boost::json::object{{"version", kRecordVersion},
                                                      {"address", to_string(record.address)},
                                                      {"host", record.host},
                                                      {"pid", record.pid},
                                                      {"claim", record.claim}});
}

Result<DaemonRecord> parse_daemon_record(std::string_view text) {
    const Error malformed{Errc::kMalformed,
                          fmt::format("'{}' is not the address of a daemon", log_line(text, kMaxShownBytes))};
    boost::json::error_code ec;
    const boost::json::value value = boost::json::parse(text, ec);
    const boost::json::object* object = ec ? nullptr : value.if_object();
    if (object == nullptr) return malformed;
    const int version = int_of(*object, "version");
    if (version == 0) return malformed;
    if (version != kRecordVersion) {
        return Error{Errc::kMismatch,
                     fmt::format("its format has version {}, this ddprun reads version {}", version, kRecordVersion)};
    }
    auto address = parse_endpoint(text_of(*object, "address"), 0);
    if (!address || address->port == 0) return malformed;
    return DaemonRecord{std::move(*address), text_of(*object, "host"), int_of(*object, "pid"),
                        text_of(*object, "claim")};
}

std::string to_string(const DaemonRecord& record) {
    return log_line(fmt::format("{} (host {}, pid {})", to_string(record.address), record.host, record.pid),
                    kMaxShownBytes);
}

}  // namespace ddprun::launcher
