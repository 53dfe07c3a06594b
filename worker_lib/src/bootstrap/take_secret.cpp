#include "worker_lib/src/bootstrap/take_secret.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "common/text/number.hpp"
#include "common/worker_secret.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"

namespace ddp::detail {

namespace {

void print_problem(const std::string& problem) {
    // In one write, because ranks may share stderr.
    std::fputs(
        fmt::format("[ddp] no secret from ddprun ({}{}): a token from the store, which its readers know, protects "
                    "the connections between ranks. Start this program without a wrapper that removes variables "
                    "or closes descriptors\n",
                    ddprun::worker_secret::kDescriptorVariable, problem)
            .c_str(),
        stderr);
}

std::string take() {
    const char* const text = std::getenv(ddprun::worker_secret::kDescriptorVariable);
    if (text == nullptr) {
        if (has_lost_secret(process_variables(), is_below_ddprun())) print_problem(" is not set");
        return {};
    }
    if (std::string_view(text) == ddprun::worker_secret::kNoSecret) return {};
    std::string problem = "not a number";
    std::string secret;
    if (const auto descriptor = ddprun::parse_number<int>(text)) secret = read_secret(*descriptor, problem);
    if (secret.empty()) print_problem(fmt::format("={}: {}", text, problem));
    return secret;
}

}  // namespace

std::string read_secret(int descriptor, std::string& problem) {
    struct stat status {};
    if (descriptor < 3 || ::fstat(descriptor, &status) != 0) {
        problem = "there is no such descriptor";
        return {};
    }
    std::string secret(sizeof(ddprun::worker_secret::Secret), '\0');
    // Another file may have this number by now. Only sealed memory of this size is read and closed.
    // The kernel adds a seal of its own where the sysctl vm.memfd_noexec is set.
    const int seals = ::fcntl(descriptor, F_GET_SEALS);
    const bool is_secret = seals >= 0 && (seals & ddprun::worker_secret::kSeals) == ddprun::worker_secret::kSeals &&
                           status.st_size == std::ssize(secret) &&
                           ::pread(descriptor, secret.data(), secret.size(), 0) == std::ssize(secret);
    if (!is_secret) {
        problem = "it is not a secret of ddprun";
        return {};
    }
    ::close(descriptor);
    return secret;
}

const std::string& process_secret() {
    static const std::string secret = take();
    return secret;
}

}  // namespace ddp::detail
