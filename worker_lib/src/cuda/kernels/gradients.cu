// The kernels of the gradient reducer, all elementwise: no thread uses the result of another one. The library contains
// them as text, gradients.ptx, to which scripts/make-ptx compiles this file. The tests compile it as C++
// (tests/fake_gpu/kernels.cpp), and execute the text.
//
// The launcher cuts the chunks of a launch into tiles of 16 KiB, and each block of 256 threads processes one. So many
// small tensors are as well balanced as one large tensor, and while backward runs, the device gives the tiles to the
// multiprocessors that it leaves free. A fixed number of blocks for each chunk, in a loop, would end with the slowest
// of them. A thread loads four vectors of 16 bytes before it stores the first one: 8 such blocks keep 128 KiB in flight
// on a multiprocessor, and the fastest memory needs about 25 KiB (its bandwidth times its latency, divided by the
// number of multiprocessors). 8 blocks need kernels of at most 32 registers.

#include <cstring>

#include "worker_lib/src/cuda/kernels/arguments.hpp"

#ifdef __CUDACC__
#define DDP_UNROLL _Pragma("unroll")
#define DDP_KEEP_LOOP _Pragma("unroll 1")
#define DDP_ARGUMENT(Type) __grid_constant__ const Type

namespace ddp::detail {

// The conversions of ddp/float16.hpp, in one instruction each. Only the bits of a NaN differ.
__device__ inline float float_of_bf16(std::uint16_t value) { return __uint_as_float(std::uint32_t{value} << 16); }
__device__ inline float float_of_f16(std::uint16_t value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
    return wide;
}
__device__ inline std::uint16_t bf16_of_float(float value) {
    std::uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
__device__ inline std::uint16_t f16_of_float(float value) {
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/// Reads a word that the host may write at any time.
__device__ inline std::uint32_t load_relaxed(const std::uint32_t* word) {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline void add_relaxed(std::uint64_t* sum, std::uint64_t value) {
    asm volatile("red.relaxed.gpu.add.u64 [%0], %1;" ::"l"(sum), "l"(value) : "memory");
}

}  // namespace ddp::detail
#else
#include "ddp/float16.hpp"
#define DDP_UNROLL
#define DDP_KEEP_LOOP
#define DDP_ARGUMENT(Type) const Type&

namespace ddp::detail {

inline std::uint32_t load_relaxed(const std::uint32_t* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
inline void add_relaxed(std::uint64_t* sum, std::uint64_t value) { __atomic_fetch_add(sum, value, __ATOMIC_RELAXED); }

}  // namespace ddp::detail
#endif

namespace ddp::detail {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

using F32 = float;
using F64 = double;
enum class F16 : std::uint16_t {};  // its bits
enum class BF16 : std::uint16_t {};

// f16 and bf16 are multiplied in f32 and rounded once.
__device__ __forceinline__ float load(float value) { return value; }
__device__ __forceinline__ double load(double value) { return value; }
__device__ __forceinline__ float load(F16 value) { return float_of_f16(static_cast<std::uint16_t>(value)); }
__device__ __forceinline__ float load(BF16 value) { return float_of_bf16(static_cast<std::uint16_t>(value)); }
__device__ __forceinline__ void store(float value, float& to) { to = value; }
__device__ __forceinline__ void store(double value, double& to) { to = value; }
__device__ __forceinline__ void store(float value, F16& to) { to = static_cast<F16>(f16_of_float(value)); }
__device__ __forceinline__ void store(float value, BF16& to) { to = static_cast<BF16>(bf16_of_float(value)); }

/// N elements that one instruction loads or stores.
template <typename T, u32 N>
struct Vector {
    T values[N];
};

template <u32 Bytes>
struct Access;
template <>
struct Access<8> {
    using Type = uint2;
};
template <>
struct Access<16> {
    using Type = uint4;
};

/// Loads N elements. For N > 1 the address is a multiple of their size.
template <u32 N, typename T>
__device__ __forceinline__ Vector<T, N> load_vector(const T* from) {
    Vector<T, N> vector;
    if constexpr (N == 1) {
        vector.values[0] = *from;
    } else {
        const auto raw = *reinterpret_cast<const typename Access<sizeof vector>::Type*>(from);
        std::memcpy(&vector, &raw, sizeof vector);
    }
    return vector;
}

template <u32 N, typename T>
__device__ __forceinline__ void store_vector(const Vector<T, N>& vector, T* to) {
    if constexpr (N == 1) {
        *to = vector.values[0];
    } else {
        typename Access<sizeof vector>::Type raw;
        std::memcpy(&raw, &vector, sizeof vector);
        *reinterpret_cast<typename Access<sizeof vector>::Type*>(to) = raw;
    }
}

template <u32 N, typename T>
__device__ __forceinline__ bool is_aligned(const T* pointer) {
    return reinterpret_cast<u64>(pointer) % (N * sizeof(T)) == 0;
}

/// Returns the number of elements in front of the first one whose address is a multiple of N elements.
template <u32 N, typename T>
__device__ __forceinline__ u32 elements_to_alignment(const T* pointer) {
    return (N - static_cast<u32>(reinterpret_cast<u64>(pointer) / sizeof(T) % N)) % N;
}

// An operation works on one tile, in vectors of kWidth elements. A thread calls load() for kBatch vectors, and then
// store() for them, so that several loads are in flight.

/// to = from * factor
template <typename From, typename To>
struct Copy {
    static constexpr u32 kTile = tile_elements(sizeof(From), sizeof(To));
    static constexpr u32 kWidth = kTile / kBlockThreads / 4;
    static constexpr u32 kBatch = 4;
    using Factor = decltype(detail::load(From{}));
    template <u32 N>
    using Loaded = Vector<From, N>;

    const From* from;
    To* to;
    Factor factor;

    __device__ __forceinline__ Copy(const CopyChunk& chunk, u64 start, double scale)
        : from(static_cast<const From*>(chunk.from) + start),
          to(static_cast<To*>(chunk.to) + start),
          factor(static_cast<Factor>(scale)) {}

    __device__ __forceinline__ u32 head() const { return elements_to_alignment<kWidth>(to); }
    __device__ __forceinline__ bool aligned_at(u64 i) const { return is_aligned<kWidth>(from + i); }

    template <u32 N>
    __device__ __forceinline__ Loaded<N> load(u64 i) const {
        return load_vector<N>(from + i);
    }
    template <u32 N>
    __device__ __forceinline__ void store(u64 i, const Loaded<N>& loaded) const {
        Vector<To, N> out;
        for (u32 k = 0; k < N; ++k) detail::store(detail::load(loaded.values[k]) * factor, out.values[k]);
        store_vector(out, to + i);
    }
};

/// gradient += residual, wire = gradient, residual = gradient - wire
template <typename Wire>
struct FeedBack {
    static constexpr u32 kTile = tile_elements(sizeof(float), sizeof(Wire));
    static constexpr u32 kWidth = kTile / kBlockThreads / 4;
    static constexpr u32 kBatch = 2;  // of two loads each
    template <u32 N>
    struct Loaded {
        Vector<float, N> gradient;
        Vector<float, N> residual;
    };

    float* gradient;
    float* residual;
    Wire* wire;

    __device__ __forceinline__ FeedBack(const FeedbackChunk& chunk, u64 start, double /*factor*/)
        : gradient(chunk.gradient + start),
          residual(chunk.residual + start),
          wire(static_cast<Wire*>(chunk.wire) + start) {}

    __device__ __forceinline__ u32 head() const { return elements_to_alignment<kWidth>(wire); }
    __device__ __forceinline__ bool aligned_at(u64 i) const {
        return is_aligned<kWidth>(gradient + i) && is_aligned<kWidth>(residual + i);
    }

    template <u32 N>
    __device__ __forceinline__ Loaded<N> load(u64 i) const {
        return {load_vector<N>(gradient + i), load_vector<N>(residual + i)};
    }
    template <u32 N>
    __device__ __forceinline__ void store(u64 i, const Loaded<N>& loaded) const {
        Vector<float, N> sums, lost;
        Vector<Wire, N> sent;
        for (u32 k = 0; k < N; ++k) {
            sums.values[k] = loaded.gradient.values[k] + loaded.residual.values[k];
            detail::store(sums.values[k], sent.values[k]);
            const float difference = sums.values[k] - detail::load(sent.values[k]);
            // A difference that is infinite or NaN would return in every step.
            lost.values[k] = difference - difference == 0 ? difference : 0;
        }
        store_vector(sums, gradient + i);
        store_vector(sent, wire + i);
        store_vector(lost, residual + i);
    }
};

/// Performs an operation on `vectors` times N elements from `start` on.
template <u32 N, u32 Batch, typename Operation>
__device__ __forceinline__ void run(const Operation& operation, u32 start, u32 vectors) {
    constexpr u32 kRound = Batch * kBlockThreads;
    u32 done = 0;
    DDP_KEEP_LOOP
    for (; vectors - done >= kRound; done += kRound) {
        typename Operation::template Loaded<N> loaded[Batch];
        const u64 first = start + (done + threadIdx.x) * N;
        DDP_UNROLL
        for (u32 k = 0; k < Batch; ++k) loaded[k] = operation.template load<N>(first + k * kBlockThreads * N);
        DDP_UNROLL
        for (u32 k = 0; k < Batch; ++k) operation.template store<N>(first + k * kBlockThreads * N, loaded[k]);
    }
    // The rest, and all small chunks: with full blocks one access of each thread is enough.
    DDP_KEEP_LOOP
    for (u32 i = done + threadIdx.x; i < vectors; i += kBlockThreads)
        operation.template store<N>(start + i * N, operation.template load<N>(start + i * N));
}

/// Performs an operation on the tile of this block.
template <typename Operation, typename Chunk>
__device__ __forceinline__ void run_tile(const ChunkTable<Chunk>& table) {
    u32 chunk = 0;  // the last one whose first tile is not behind this one
    for (u32 end = table.count; end - chunk > 1;) {
        const u32 middle = (chunk + end) / 2;
        if (table.first_tile[middle] <= blockIdx.x) {
            chunk = middle;
        } else {
            end = middle;
        }
    }
    const u64 start = u64{blockIdx.x - table.first_tile[chunk]} * Operation::kTile;
    const u64 left = table.chunks[chunk].count - start;
    const u32 count = left < Operation::kTile ? static_cast<u32>(left) : Operation::kTile;
    const Operation operation(table.chunks[chunk], start, table.factor);

    const u32 head = operation.head();
    if (head > count || !operation.aligned_at(head)) {
        run<1, 2 * Operation::kBatch>(operation, 0, count);
        return;
    }
    const u32 vectors = (count - head) / Operation::kWidth;
    run<Operation::kWidth, Operation::kBatch>(operation, head, vectors);
    const u32 single = threadIdx.x < head ? threadIdx.x : threadIdx.x + vectors * Operation::kWidth;
    if (single < count && threadIdx.x < 2 * Operation::kWidth)
        operation.template store<1>(single, operation.template load<1>(single));
}

}  // namespace
}  // namespace ddp::detail

#define DDP_KERNEL extern "C" __global__ void __launch_bounds__(ddp::detail::kBlockThreads)
#define DDP_COPY(name, From, To)                                                             \
    DDP_KERNEL name(DDP_ARGUMENT(ddp::detail::ChunkTable<ddp::detail::CopyChunk>) table) {   \
        ddp::detail::run_tile<ddp::detail::Copy<ddp::detail::From, ddp::detail::To>>(table); \
    }
#define DDP_FEED_BACK(name, Wire)                                                              \
    DDP_KERNEL name(DDP_ARGUMENT(ddp::detail::ChunkTable<ddp::detail::FeedbackChunk>) table) { \
        ddp::detail::run_tile<ddp::detail::FeedBack<ddp::detail::Wire>>(table);                \
    }

DDP_COPY(ddp_copy_f64, F64, F64)
DDP_COPY(ddp_copy_f32, F32, F32)
DDP_COPY(ddp_copy_f16, F16, F16)
DDP_COPY(ddp_copy_bf16, BF16, BF16)
DDP_COPY(ddp_copy_f32_to_f16, F32, F16)
DDP_COPY(ddp_copy_f32_to_bf16, F32, BF16)
DDP_COPY(ddp_copy_f16_to_f32, F16, F32)
DDP_COPY(ddp_copy_bf16_to_f32, BF16, F32)
DDP_FEED_BACK(ddp_feed_back_f16, F16)
DDP_FEED_BACK(ddp_feed_back_bf16, BF16)

/// If the word `given_up` is not 0: fills the memory with zeros, and sets `step_ok` to 0. A word that the host writes
/// while this runs may be seen by a part of the blocks only, which is why each of them sets `step_ok`.
DDP_KERNEL ddp_seal(unsigned char* memory, std::uint64_t bytes, const std::uint32_t* given_up, std::uint32_t* step_ok) {
    using namespace ddp::detail;
    if (load_relaxed(given_up) == 0) return;
    if (threadIdx.x == 0) *step_ok = 0;
    const u64 thread = u64{blockIdx.x} * kBlockThreads + threadIdx.x;
    const u64 to_alignment = elements_to_alignment<16>(memory);
    const u64 head = to_alignment < bytes ? to_alignment : bytes;
    const u64 vectors = (bytes - head) / 16;
    auto* const aligned = reinterpret_cast<uint4*>(memory + head);
    for (u64 i = thread; i < vectors; i += u64{gridDim.x} * kBlockThreads) aligned[i] = uint4{0, 0, 0, 0};
    const u64 single = thread < head ? thread : thread + vectors * 16;
    if (single < bytes && thread < 32) memory[single] = 0;
}

/// Adds a hash of the memory to `sum`. Each word of 8 bytes is mixed with its index (splitmix64: Steele et al. 2014,
/// doi:10.1145/2714064.2660195), and the results are added up, so that the order of the threads does not matter.
DDP_KERNEL ddp_hash(const unsigned char* memory, std::uint64_t bytes, std::uint64_t* sum) {
    using namespace ddp::detail;
    const bool aligned = is_aligned<8>(memory);
    u64 own = 0;
    for (u64 i = u64{blockIdx.x} * kBlockThreads + threadIdx.x; i * 8 < bytes; i += u64{gridDim.x} * kBlockThreads) {
        u64 word = 0;
        if (aligned && i < bytes / 8) {
            word = reinterpret_cast<const u64*>(memory)[i];
        } else {
            const u32 count = bytes - i * 8 < 8 ? static_cast<u32>(bytes - i * 8) : 8;
            DDP_KEEP_LOOP
            for (u32 k = 0; k < count; ++k) word |= u64{memory[i * 8 + k]} << (8 * k);
        }
        u64 mixed = word + (i + 1) * 0x9e3779b97f4a7c15;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
        own += mixed ^ (mixed >> 31);
    }
    add_relaxed(sum, own);
}
