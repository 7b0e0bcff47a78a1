#pragma once
// The calibration program, graphpipe-calibrate: what this machine does in a second, without a model. It takes about a
// second and stands behind `--devices N` where no cluster is named.
//
// All processes measure their operators at the same time, so that the numbers are those of a machine at work. Of
// several rounds the fastest counts: other load of the machine must not end up in a cached calibration.

namespace graphpipe::runtime {

/// The main function. Started as one rank it measures no link; of two ranks the first one prints. --threads is
/// that of the programs that the numbers are for. Lines on stdout, in seconds, bytes and FLOP/s:
///   device FLOPS MEMORY_BYTES_PER_SECOND OPERATOR_SECONDS
///   kernels CONVOLUTION_FLOPS ATTENTION_FLOPS
///   update OPTIMIZER TENSOR BYTE
///   link LATENCY SECONDS_PER_BYTE
///   runtime ACTION MESSAGE MESSAGE_BYTE
/// With --folder, a generated one, it measures the products of that folder and nothing else (measure_products.h).
int run_calibrate(int argc, char** argv);

}  // namespace graphpipe::runtime
