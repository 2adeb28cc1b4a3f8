// torch's own c10d for Rust: a TCPStore and a ProcessGroupGloo behind a C interface.
//
// In: at::Tensor pointers (what tch holds), contiguous, on the CPU, defined. Out: 0, or 1 with a message in `message`.
// Always holds: no exception crosses; every operation is over when its function returns; all ranks must call the same
// operations in the same order. The other side is trainer/src/distributed/bridge.rs, which keeps the declarations.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "guarded.h"

namespace {

using hds::guarded;
using Milliseconds = std::chrono::milliseconds;

// Where the ranks meet, and, once they have met, what they exchange by.
struct Group {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
};

at::Tensor& tensor(void* pointer) {
  return *static_cast<at::Tensor*>(pointer);
}

Group& group(void* pointer) {
  return *static_cast<Group*>(pointer);
}

void finish(const c10::intrusive_ptr<c10d::Work>& work) {
  work->wait();
}

}  // namespace

extern "C" {

// Connects to the store at host:port, which rank 0 serves where `serves` is 1; keys begin with `prefix`.
int hds_c10d_meet(const char* host, uint16_t port, int serves, const char* prefix, int64_t timeout_ms, void** out,
                  char* text, size_t size) {
  return guarded({text, size}, [&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = serves != 0;
    options.waitWorkers = false;
    options.timeout = Milliseconds(timeout_ms);
    c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::TCPStore>(host, options);
    store = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
    *out = new Group{std::move(store), nullptr};
  });
}

// Adds to the number under a key, which is 0 where there is none; gives the sum in `*sum`.
int hds_c10d_add(void* pointer, const char* key, int64_t amount, int64_t* sum, char* text, size_t size) {
  return guarded({text, size}, [&] { *sum = group(pointer).store->add(std::string(key), amount); });
}

// Whether there is a number under a key: 1 or 0 in `*present`.
int hds_c10d_announced(void* pointer, const char* key, int* present, char* text, size_t size) {
  return guarded({text, size}, [&] { *present = group(pointer).store->check({std::string(key)}) ? 1 : 0; });
}

// Connects every rank with every other. No operation may take longer than `timeout_ms`.
int hds_c10d_connect(void* pointer, int rank, int world, int64_t timeout_ms, char* text, size_t size) {
  return guarded({text, size}, [&] {
    // Heeds GLOO_SOCKET_IFNAME, as PyTorch does.
    auto options = c10d::ProcessGroupGloo::Options::create_default(Milliseconds(timeout_ms));
    group(pointer).gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(group(pointer).store, rank, world, options);
  });
}

// Leaves the sum over all ranks in `values` on every rank.
int hds_c10d_all_reduce(void* pointer, void* values, char* text, size_t size) {
  return guarded({text, size}, [&] {
    std::vector<at::Tensor> tensors{tensor(values)};
    finish(group(pointer).gloo->allreduce(tensors));
  });
}

// Copies `values` of rank `root` to every rank.
int hds_c10d_broadcast(void* pointer, void* values, int root, char* text, size_t size) {
  return guarded({text, size}, [&] {
    std::vector<at::Tensor> tensors{tensor(values)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    finish(group(pointer).gloo->broadcast(tensors, options));
  });
}

// Sends `values` to rank `to`, which receives them.
int hds_c10d_send(void* pointer, void* values, int to, char* text, size_t size) {
  return guarded({text, size}, [&] {
    std::vector<at::Tensor> tensors{tensor(values)};
    finish(group(pointer).gloo->send(tensors, to, 0));
  });
}

// Receives from rank `from` into `values`.
int hds_c10d_receive(void* pointer, void* values, int from, char* text, size_t size) {
  return guarded({text, size}, [&] {
    std::vector<at::Tensor> tensors{tensor(values)};
    finish(group(pointer).gloo->recv(tensors, from, 0));
  });
}

// Ends all connections. The pointer must not be used again.
void hds_c10d_close(void* pointer) {
  char text[256];
  guarded({text, sizeof(text)}, [&] { delete static_cast<Group*>(pointer); });
}
}
