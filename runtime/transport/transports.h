#pragma once
// The transports between ranks; each is one file of its name.

#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// Shared memory between the ranks of a host, TCP between hosts: open_shm where all ranks are on one, open_tcp where
/// each has its own.
std::unique_ptr<Transport> open_auto(const TransportSetup& setup);

/// Rings in shared memory. TransportSetup::sharing must run on one host, in one process-id namespace, as one user.
std::unique_ptr<Transport> open_shm(const TransportSetup& setup);
/// The ranks that could use open_shm with this one, itself among them, in ascending order; decided over the store, so
/// that all of them get the same.
std::vector<int32_t> ranks_of_host(const TransportSetup& setup);
/// Whether those are all ranks.
bool ranks_share_memory(const TransportSetup& setup);

/// TCP connections. Needs TransportSetup::control.
std::unique_ptr<Transport> open_tcp(const TransportSetup& setup);

/// NCCL, or null where this build has none.
std::unique_ptr<Transport> open_nccl(const TransportSetup& setup);

}  // namespace graphpipe::runtime
