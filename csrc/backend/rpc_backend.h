// llama.cpp's RPC backend: devices of other machines. Builds without GGML_RPC do not have it.
#pragma once

#include <string>
#include <vector>

namespace unpaced {

// Devices of workers, each "HOST:PORT", count as this machine's from now on; once each. Where one
// cannot be reached, or is no worker, llama.cpp ends the process. Throws std::runtime_error where
// this build has no RPC, or a worker no device.
void add_rpc_workers(const std::vector<std::string>& endpoints);

// Lets one server at a time compute on the devices named; none named: on all but the CPU, or on it
// where there is no other. Whoever reaches the address may read and write this process's memory.
// Returns where it cannot begin. Throws std::runtime_error.
void run_rpc_worker(const std::string& endpoint, int n_threads,
                    const std::vector<std::string>& devices);

}  // namespace unpaced
