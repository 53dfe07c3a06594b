#include "ctl/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "common/exit_codes.hpp"
#include "common/text/escape.hpp"
#include "common/text/number.hpp"
#include "common/text/print.hpp"
#include "ctl/session.hpp"

namespace ddprun::ctl {

std::string checkpoint_text(const checkpoint::StoredCheckpoint& file) {
    std::size_t bytes = 0;
    for (const checkpoint::Tensor& tensor : file.tensors) bytes += tensor.bytes;
    std::string text = file.version == 0 ? std::string("a safetensors file without checksums")
                                         : fmt::format("step {}, saved by {}, format version {}", file.facts.step,
                                                       counted(file.facts.world_size, "rank"), file.version);
    text += fmt::format(": {}, {} bytes\n", counted(file.tensors.size(), "tensor"), bytes);
    for (const checkpoint::Tensor& tensor : file.tensors)
        text += fmt::format("{:<5} {:>15} bytes  {} [{}]\n", tensor.dtype, tensor.bytes, escape_controls(tensor.name),
                            fmt::join(tensor.shape, ","));
    return text;
}

int run_checkpoint(const CheckpointOptions& options) {
    const std::string context = "checkpoint " + options.path;
    const auto file = checkpoint::open_checkpoint(options.path);
    const auto code_of = [](const Error& error) {
        return error.code == Errc::kMalformed ? exit_code::kDamaged : exit_code::kUsage;
    };
    if (!file) return fail(with_context(context, file.error()), code_of(file.error()));
    if (const auto printed = print_to_stdout(checkpoint_text(*file)); !printed)
        return fail(printed.error(), exit_code::kOutput);
    if (file->version == 0) return exit_code::kSuccess;
    if (const auto sound = checkpoint::verify(*file); !sound)
        return fail(with_context(context, sound.error()), code_of(sound.error()));
    const auto printed = print_to_stdout(fmt::format("whole: {} verified\n", counted(file->chunks.size(), "checksum")));
    return printed ? exit_code::kSuccess : fail(printed.error(), exit_code::kOutput);
}

}  // namespace ddprun::ctl
