// The calls of the fake driver that concern memory.

#include <atomic>
#include <cstring>
#include <memory>

#include "tests/fake_gpu/call.hpp"
#include "tests/fake_gpu/captures.hpp"

using namespace ddp::fake;

namespace {

MemoryTable& table() { return MemoryTable::instance(); }
std::byte* address(CUdeviceptr pointer) { return reinterpret_cast<std::byte*>(pointer); }

CUresult allocate(Block::Kind kind, std::size_t bytes, void** start) {
    if (bytes == 0) return kInvalidValue;
    if (Captures::instance().broken_by_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const Block* const block = table().allocate(kind, current_device()->ordinal(), bytes);
    if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *start = block->start;
    return CUDA_SUCCESS;
}

/// Waits for all work of the device, as a driver does, and forgets the block.
CUresult give_back(void* start, Block::Kind kind, CUresult unknown) {
    if (Captures::instance().broken_by_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    Block* const block = table().at(start, kind);
    if (block == nullptr) {
        report_misuse("a freed address is not the start of a block of this kind, or was freed before");
        return unknown;
    }
    if (const int tasks = block->tasks_in_flight.load(std::memory_order_relaxed); tasks > 0) {
        report_misuse(block->text() + " is freed while " + std::to_string(tasks) +
                      " tasks with it are in flight, the last by " + block->last_user.load(std::memory_order_relaxed));
    }
    if (kind == Block::Kind::Device) {
        Device::all()[static_cast<std::size_t>(block->device)]->wait_for_all_work();
    } else {  // every device could use it
        for (const auto& device : Device::all()) device->wait_for_all_work();
    }
    table().remove(*block);
    return CUDA_SUCCESS;
}

/// A range of a copy or a memset.
struct Range {
    Block* block = nullptr;  // nullptr: pageable memory of the host
    bool valid = true;       // it does not leave its block
};
Range range_at(const std::byte* start, std::size_t bytes) {
    Block* const block = table().containing(start);
    if (block == nullptr) return {};
    return {block, bytes <= block->bytes - static_cast<std::size_t>(start - block->start)};
}

/// Waits for what the calling thread has enqueued on the stream so far.
CUresult wait_for(CUstream stream) {
    const auto [target, error] = target_of(stream);
    if (target == nullptr) return error;
    target->device().record(*target).wait();
    return CUDA_SUCCESS;
}

}  // namespace

DDP_FAKE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* memory, std::size_t bytes) {
    return call("cuMemAlloc", Needs::Context, [&] {
        void* start = nullptr;
        const CUresult error = allocate(Block::Kind::Device, bytes, &start);
        if (error == CUDA_SUCCESS) *memory = reinterpret_cast<CUdeviceptr>(start);
        return error;
    });
}

DDP_FAKE_EXPORT CUresult cuMemFree_v2(CUdeviceptr memory) {
    return call("cuMemFree", Needs::Context, [&] {
        return memory == 0 ? CUDA_SUCCESS : give_back(address(memory), Block::Kind::Device, kInvalidValue);
    });
}

/// No allocation fails because of the amount of memory: the total is a number that no test reaches.
DDP_FAKE_EXPORT CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
    return call("cuMemGetInfo", Needs::Context, [&] {
        constexpr std::size_t kTotal = std::size_t{80} << 30;
        *total = kTotal;
        *free = kTotal - table().allocated_on(current_device()->ordinal());
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
    return call("cuMemHostAlloc", Needs::Context, [&] { return allocate(Block::Kind::Pinned, bytes, memory); });
}

DDP_FAKE_EXPORT CUresult cuMemFreeHost(void* memory) {
    return call("cuMemFreeHost", Needs::Context, [&] { return give_back(memory, Block::Kind::Pinned, kInvalidValue); });
}

DDP_FAKE_EXPORT CUresult cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
    return call("cuMemHostRegister", Needs::Context, [&] {
        if (memory == nullptr || bytes == 0) return kInvalidValue;
        const Block* const block = table().add_registered(current_device()->ordinal(), memory, bytes);
        return block == nullptr ? kAlreadyRegistered : CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuMemHostUnregister(void* memory) {
    return call("cuMemHostUnregister", Needs::Context,
                [&] { return give_back(memory, Block::Kind::Registered, kNotRegistered); });
}

DDP_FAKE_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* memory, unsigned flags) {
    return call("cuMemHostGetDevicePointer", Needs::Context, [&] {
        const Block* const block = table().containing(memory);
        if (flags != 0 || block == nullptr || block->kind == Block::Kind::Device) return kInvalidValue;
        *pointer = reinterpret_cast<CUdeviceptr>(memory);
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, std::size_t bytes, CUstream stream) {
    return call("cuMemsetD8Async", Needs::Context, [&] {
        std::byte* const to = address(memory);
        const auto [block, valid] = range_at(to, bytes);
        if (block == nullptr || !valid) return kInvalidValue;
        return enqueue(stream, [=] { std::memset(to, value, bytes); }, {block});
    });
}

/// Words of pinned memory may be polled by threads and processes.
DDP_FAKE_EXPORT CUresult cuMemsetD32Async(CUdeviceptr memory, unsigned value, std::size_t count, CUstream stream) {
    return call("cuMemsetD32Async", Needs::Context, [&] {
        std::byte* const to = address(memory);
        const auto [block, valid] = range_at(to, count * sizeof value);
        if (block == nullptr || !valid || memory % sizeof value != 0) return kInvalidValue;
        auto* const words = reinterpret_cast<unsigned*>(to);
        const auto fill = [=] {
            for (std::size_t i = 0; i < count; ++i) std::atomic_ref(words[i]).store(value, std::memory_order_relaxed);
        };
        return enqueue(stream, fill, {block});
    });
}

/// Pageable memory of the host is read before the call returns, or written before it returns, as with a driver.
DDP_FAKE_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return call("cuMemcpyAsync", Needs::Context, [&] {
        std::byte* const target = address(to);
        const std::byte* const source = address(from);
        const Range written = range_at(target, bytes);
        const Range read = range_at(source, bytes);
        if (!written.valid || !read.valid) return kInvalidValue;
        std::vector<Block*> blocks;
        if (written.block != nullptr) blocks.push_back(written.block);
        if (read.block != nullptr && read.block != written.block) blocks.push_back(read.block);
        CUresult error = CUDA_SUCCESS;
        if (read.block == nullptr) {
            std::vector<std::byte> staged(source, source + bytes);
            error = enqueue(
                stream, [target, staged = std::move(staged)] { std::memcpy(target, staged.data(), staged.size()); },
                blocks);
        } else {
            error = enqueue(
                stream, [=] { std::memcpy(target, source, bytes); }, blocks);
        }
        return error == CUDA_SUCCESS && written.block == nullptr ? wait_for(stream) : error;
    });
}

/// Succeeds for memory that the driver does not know, with zeros. Needs no context: addresses are unique in a process.
DDP_FAKE_EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                                CUdeviceptr pointer) {
    return call("cuPointerGetAttributes", Needs::Driver, [&] {
        constexpr unsigned kHost = 1;  // CU_MEMORYTYPE_HOST
        const Block* const block = table().containing(address(pointer));
        for (unsigned i = 0; i < count; ++i) {
            switch (attributes[i]) {
                case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: {
                    const bool on_device = block != nullptr && block->kind == Block::Kind::Device;
                    *static_cast<unsigned*>(values[i]) = block == nullptr ? 0
                                                         : on_device      ? CU_MEMORYTYPE_DEVICE
                                                                          : kHost;
                    break;
                }
                case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(values[i]) = 0; break;
                case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                    *static_cast<int*>(values[i]) = block == nullptr ? 0 : block->device;
                    break;
                default: return kInvalidValue;
            }
        }
        return CUDA_SUCCESS;
    });
}
