# GraphPipe on CPU, by the steps of README.md:  docker build -t graphpipe . && docker run --rm graphpipe --help
FROM debian:12
COPY . /graphpipe
WORKDIR /graphpipe
# Installs what is missing, builds, and trains the first pipeline: an image exists only where that works.
RUN scripts/demo
ENV PATH="/graphpipe/build/release/bin:$PATH"
ENTRYPOINT ["graphpipe"]
