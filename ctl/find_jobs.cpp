#include "ctl/find_jobs.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

namespace ddprun::ctl {

Job job_of(const std::string& environment) {
    Job job;
    std::istringstream entries(environment);
    for (std::string entry; std::getline(entries, entry, '\0');) {
        const auto value_of = [&](std::string_view name) { return entry.substr(name.size()); };
        if (entry.starts_with("DDPRUN_ENDPOINT=")) job.endpoint = value_of("DDPRUN_ENDPOINT=");
        if (entry.starts_with("DDPRUN_RUN_ID=")) job.run_id = value_of("DDPRUN_RUN_ID=");
    }
    return job;
}

std::vector<Job> find_jobs() {
    std::set<Job> jobs;
    std::error_code ignored;  // processes end while we look
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        std::ifstream file(entry.path() / "environ", std::ios::binary);
        const Job job = job_of({std::istreambuf_iterator<char>(file), {}});
        if (!job.endpoint.empty()) jobs.insert(job);
    }
    return {jobs.begin(), jobs.end()};
}

}  // namespace ddprun::ctl
