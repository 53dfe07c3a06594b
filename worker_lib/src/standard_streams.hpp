#pragma once
// Descriptors 0, 1 and 2 of the trainer's process.

namespace ddp::detail {

/// Opens /dev/null where one of them is closed (`train >&-`, some service managers). Else the next socket or memory of
/// ours would get its number, and whoever prints would write into that.
void occupy_closed_standard_streams();

}  // namespace ddp::detail
