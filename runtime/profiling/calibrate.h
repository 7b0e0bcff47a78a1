#pragma once
// The calibration program, graphpipe-calibrate: what this machine can do per second, without a model. It takes about five
// seconds and provides the numbers for `--devices N` if no cluster is given.
//
// All processes measure their operators at the same time, so that the numbers are those of a busy machine. The fastest
// of several rounds counts: other load on the machine must not end up in a cached calibration.

namespace graphpipe::runtime {

/// The main function. Started as one rank it measures no link; of two ranks the first one prints. --threads is the
/// value that the programs will run with. Lines on stdout, in seconds, bytes and FLOP/s:
///   device FLOPS MEMORY_BYTES_PER_SECOND OPERATOR_SECONDS
///   kernels CONVOLUTION_FLOPS WINOGRAD_FLOPS DEPTHWISE_FLOPS ATTENTION_FLOPS FUNCTION_FLOPS
///   bfloat16 PRODUCT_FLOPS CONVOLUTION_FLOPS ATTENTION_FLOPS
///   float16 PRODUCT_FLOPS CONVOLUTION_FLOPS ATTENTION_FLOPS
///   weights BYTES_PER_SECOND
///   update OPTIMIZER TENSOR BYTE
///   link LATENCY SECONDS_PER_BYTE
///   runtime ACTION MESSAGE MESSAGE_BYTE ADD_BYTE
/// ADD_BYTE is 0, for not measured, of one rank and where two share a core.
/// With --folder, a generated one, it only measures the products and convolutions of that folder (measure_products.h).
[[noreturn]] int run_calibrate(int argc, char** argv);

}  // namespace graphpipe::runtime
