#include "agent/workers/error_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>

namespace ddprun::agent {
namespace {

namespace json = boost::json;

Error malformed(std::string_view what) {
    return {Errc::kMalformed, fmt::format("its error file {}; expected {{\"message\": …}}", what)};
}

}  // namespace

Result<ErrorFile> ErrorFile::in_memory() {
    UniqueFd fd(::memfd_create("ddprun-error-file", MFD_CLOEXEC));
    if (!fd) return system_error("cannot make an error file in memory", errno);
    std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), fd.get());
    return ErrorFile(std::move(path), std::move(fd));
}

Result<std::string> ErrorFile::read(std::size_t max_bytes) const {
    struct stat status {};
    const bool known = ::fstat(fd_.get(), &status) == 0;
    const std::size_t expected = known ? static_cast<std::size_t>(status.st_size) : max_bytes;
    std::string text(std::min(expected, max_bytes) + 1, '\0');
    std::size_t size = 0;
    while (size < text.size()) {
        const ssize_t got = ::pread(fd_.get(), text.data() + size, text.size() - size, static_cast<off_t>(size));
        if (got < 0) return system_error(fmt::format("its error file {} cannot be read", path_), errno);
        if (got == 0) break;
        size += static_cast<std::size_t>(got);
    }
    if (size > max_bytes) return Error{Errc::kLimit, fmt::format("its error file is larger than {} bytes", max_bytes)};
    text.resize(size);
    return text;
}

bool ErrorFile::empty() const {
    struct stat status {};
    return ::fstat(fd_.get(), &status) != 0 || status.st_size == 0;
}

Result<std::string> parse_error_file(std::string_view text) {
    if (text.empty()) return std::string();
    boost::system::error_code error;
    const json::value value = json::parse({text.data(), text.size()}, error);
    if (error) return malformed(fmt::format("is not JSON ({})", error.message()));
    const json::object* object = value.if_object();
    const json::value* message = object != nullptr ? object->if_contains("message") : nullptr;
    if (message == nullptr) return malformed("has no \"message\"");
    if (const json::object* inner = message->if_object()) {
        message = inner->if_contains("message");
        if (message == nullptr) return malformed("has no \"message\" in its \"message\"");
    }
    if (const json::string* string = message->if_string()) return std::string(string->data(), string->size());
    return malformed("has a \"message\" that is not text");
}

}  // namespace ddprun::agent
