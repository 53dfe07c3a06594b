#include "support/data.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>

#include "support/user_error.hpp"

namespace train {
namespace {

constexpr const char* kDefaultFolder = "/usr/share/common-licenses";

/// Returns the files of the default folder, sorted, each once although links point to some.
std::vector<std::filesystem::path> default_files() {
    std::set<std::filesystem::path> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(kDefaultFolder, error)) {
        std::error_code broken_link;  // then it is not a regular file
        if (entry.is_regular_file(broken_link)) files.insert(std::filesystem::canonical(entry.path()));
    }
    if (files.empty())
        throw UserError(concat("no --data is given, and the default folder ", kDefaultFolder,
                               " has no files. Pass files with --data"));
    return {files.begin(), files.end()};
}

/// Throws UserError naming the file and the cause.
void append_file(const std::filesystem::path& path, std::vector<std::uint8_t>& bytes) {
    std::error_code absent;
    // A pipe or a device may have no end, and gives each rank other bytes.
    const bool is_other = std::filesystem::exists(path, absent) && !std::filesystem::is_regular_file(path, absent);
    std::ifstream file;
    if (!is_other) file.open(path, std::ios::binary);
    if (file.is_open()) bytes.insert(bytes.end(), std::istreambuf_iterator<char>(file), {});
    if (file.is_open() && !file.bad()) return;
    const char* const cause = is_other ? "it is not a regular file" : std::strerror(errno);
    throw UserError(concat("cannot read data file ", path.string(), ": ", cause, ". Pass readable files with --data"));
}

}  // namespace

Text read_text(std::vector<std::filesystem::path> files) {
    if (files.empty()) files = default_files();
    Text text;
    for (const auto& path : files) append_file(path, text.bytes);
    // FNV-1a: equal on all machines, which std::hash need not be.
    text.fingerprint = 0xcbf29ce484222325u;
    for (const std::uint8_t byte : text.bytes) text.fingerprint = (text.fingerprint ^ byte) * 0x100000001b3u;
    return text;
}

Text read_same_text(const std::vector<std::filesystem::path>& files, ddp::Context& context) {
    Text text;
    std::string problem;
    try {
        text = read_text(files);
    } catch (const UserError& error) {
        problem = error.what();
    }
    // Two nodes may have different files under one name. Then the ranks would shard different samples.
    const std::array<std::uint64_t, 2> here{text.bytes.size(), text.fingerprint};
    auto on_rank_0 = here;
    context.world().broadcast(on_rank_0, 0).wait();
    if (problem.empty() && on_rank_0 != here)
        problem = concat("rank ", context.rank(), " on node ", context.node_rank(), " reads other data (", here[0],
                         " bytes) than rank 0 (", on_rank_0[0], "). Give all nodes the same files with --data");

    fail_together(problem, context);
    return text;
}

Batches::Batches(const Text& text, const Options& options, int rank, int world_size)
    : text_(text),
      options_(options),
      rank_(static_cast<std::size_t>(rank)),
      world_size_(static_cast<std::size_t>(world_size)) {
    const std::size_t needed = options.shape.context + options.global_batch;
    if (text.bytes.size() < needed)
        throw UserError(rank > 0 ? ""
                                 : concat("the data has ", text.bytes.size(), " bytes, but one step needs ", needed,
                                          ". Pass more with --data, or a smaller --global-batch"));
    const std::size_t windows = text.bytes.size() - options.shape.context;  // with a next byte
    steps_per_epoch_ = windows / options.global_batch;
    sampler_.emplace(windows, world_size, rank, ddp::SamplerOptions{.seed = options.seed});
    starts_ = sampler_->indices();
}

const Batch& Batches::of_step(std::size_t step) {
    if (const std::size_t epoch = (step - 1) / steps_per_epoch_; epoch != epoch_) {
        epoch_ = epoch;
        sampler_->set_epoch(epoch);
        starts_ = sampler_->indices();
    }
    // The sampler deals the windows of an epoch out to the ranks in turn, so this rank has positions rank, rank + world
    // size, … of them. It takes those of its positions that the batch covers.
    const std::size_t begin = (step - 1) % steps_per_epoch_ * options_.global_batch;
    const auto mine_before = [&](std::size_t position) { return (position + world_size_ - 1 - rank_) / world_size_; };
    const std::size_t first = mine_before(begin);
    batch_.targets.resize(mine_before(begin + options_.global_batch) - first);
    const std::size_t context = options_.shape.context;
    batch_.contexts.resize(batch_.size() * context);
    for (std::size_t i = 0; i < batch_.size(); ++i) {
        const std::uint8_t* window = text_.bytes.data() + starts_[first + i];
        std::copy_n(window, context, batch_.contexts.data() + i * context);
        batch_.targets[i] = window[context];
    }
    return batch_;
}

}  // namespace train
