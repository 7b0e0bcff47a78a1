#include "wire/product_table.h"

#include <doctest/doctest.h>

using namespace graphpipe::wire;

TEST_CASE("a table of products reads back as it was printed, measured or not") {
  const ProductTable table{
      .threads = 2,
      .products = {{{64, 128, 256, false, true}},
                   {{64, 128, 256, true, false}, ProductKernel::kBlas},
                   {{512, 768, 3072, false, true}, ProductKernel::kOneDnn},
                   {{512, 768, 3072, true, true}, ProductKernel::kPacked}},
      .convolutions = {{{ConvolutionPass::kForward, 8, 64, 32, 16, 15, 1, 0}},
                       {{ConvolutionPass::kInputGradient, 8, 64, 32, 16, 15, 1, 0}, ConvolutionKernel::kWinograd4},
                       {{ConvolutionPass::kWeightGradient, 8, 64, 32, 16, 15, 1, 0}, ConvolutionKernel::kDirect}}};
  const std::string text =
      "graphpipe-products 3\nthreads 2\nproduct 64 128 256 n t\nproduct 64 128 256 t n blas\n"
      "product 512 768 3072 n t onednn\nproduct 512 768 3072 t t packed\nconvolution forward 8 64 32 16 15 1 0\n"
      "convolution input-gradient 8 64 32 16 15 1 0 winograd-4x4\nconvolution weight-gradient 8 64 32 16 15 1 0 "
      "direct\n";
  CHECK(print_product_table(table) == text);
  CHECK(parse_product_table(text) == table);
  CHECK(parse_product_table(print_product_table({})) == ProductTable{});
}

TEST_CASE("another text is no table of products") {
  const std::string start = "graphpipe-products 3\nthreads 1\n", line = "product 64 128 256 n t blas\n";
  const std::string convolution = "convolution forward 8 64 32 16 15 1 0 direct\n";
  CHECK(parse_product_table(start + line + convolution));
  for (const std::string& text : {std::string(),
                                  std::string("graphpipe-products 2\nthreads 1\n"),
                                  std::string("graphpipe-products 3\n"),
                                  std::string("graphpipe-products 3\nthreads 0\n"),
                                  start + "product 64 128 256 n\n",
                                  start + "product 64 128 256 n x\n",
                                  start + "product 64 128 256 n t mkl\n",
                                  start + "product 64 0 256 n t\n",
                                  start + "product 64 -1 256 n t\n",
                                  start + "product 64 99999999999999999999 256 n t\n",
                                  start + line + line,
                                  start + line + "product 32 128 256 n t\n",
                                  start + line + "\n",
                                  start + convolution + line,
                                  start + convolution + convolution,
                                  start + "convolution forward 8 64 32 16 15 1 -1\n",
                                  start + "convolution forward 8 64 32 0 15 1 1\n",
                                  start + "convolution back 8 64 32 16 15 1 1\n",
                                  start + "convolution forward 8 64 32 16 15 1 1 blas\n",
                                  start + "convolution forward 8 64 32 16 15 1\n",
                                  start + line.substr(0, line.size() - 1)}) {
    CAPTURE(text);
    std::string problem;
    CHECK_FALSE(parse_product_table(text, problem));
    CHECK(problem.starts_with("line "));
  }
}

TEST_CASE("a line whose kernel does not fit its convolution is named") {
  const std::string start = "graphpipe-products 3\nthreads 1\n", deep = "convolution forward 2 512 512 7 7 1 1 ";
  CHECK(parse_product_table(start + deep + "winograd-2x2\n"));
  std::string problem;
  CHECK_FALSE(parse_product_table(start + deep + "winograd-4x4\n", problem));
  CHECK(problem == "line 3 has a kernel that does not fit its convolution: '" + deep + "winograd-4x4'");
}
