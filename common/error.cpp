#include "common/error.hpp"

#include <fmt/format.h>

#include <system_error>

namespace ddprun {
namespace {

class Category final : public boost::system::error_category {
public:
    const char* name() const noexcept override { return "ddprun"; }

    std::string message(int value) const override {
        switch (static_cast<Errc>(value)) {
            case Errc::kUsage: return "bad usage";
            case Errc::kMalformed: return "malformed input";
            case Errc::kLimit: return "limit exceeded";
            case Errc::kMismatch: return "mismatch";
            case Errc::kTimeout: return "timed out";
            case Errc::kUnreachable: return "unreachable";
            case Errc::kClosed: return "connection closed";
            case Errc::kNotFound: return "not found";
            case Errc::kInUse: return "already in use";
            case Errc::kRefused: return "refused";
            case Errc::kSystem: return "system call failed";
            case Errc::kUntrusted: return "untrusted";
        }
        return "unknown error";
    }
};

}  // namespace

const boost::system::error_category& ddprun_category() noexcept {
    static const Category category;
    return category;
}

Error system_error(std::string_view what, int errno_value) {
    const boost::system::error_code code(errno_value, boost::system::system_category());
    return {code, fmt::format("{}: {}", what, std::generic_category().message(errno_value))};
}

Error with_context(std::string_view context, Error error) {
    error.message = fmt::format("{}: {}", context, error.message);
    return error;
}

void throw_exception_from_error(const Error& error, const boost::source_location&) { throw ErrorException(error); }

}  // namespace ddprun
