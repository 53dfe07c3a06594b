#pragma once
// DDP_EXPORT: marks the namespace blocks whose functions and classes the shared library exports, `namespace DDP_EXPORT
// ddp {`. All else is compiled with hidden visibility, so classes of ddp::detail are declared outside of these blocks.

#define DDP_EXPORT [[gnu::visibility("default")]]
