# The agent on Debian stable: bcc is the distribution's, and so is the Python that it is built for.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-hatchling python3-pip python3-venv
WORKDIR /build
COPY requirements-image.lock ./
# Without pip of its own, because the image installs nothing.
RUN python3 -m venv --without-pip --system-site-packages /opt/lastcall \
    && python3 -m pip --python /opt/lastcall/bin/python install --no-cache-dir --no-compile --require-hashes \
        --ignore-installed -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY bpf bpf
COPY agent agent
RUN python3 -m pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
    && python3 -m pip --python /opt/lastcall/bin/python install --no-compile --no-deps --no-index /tmp/wheel/*.whl
# The client for asyncio is half of all the libraries' size, and the agent does not use it. Bytecode is made here
# because the DaemonSet's root file system is read-only, but not of the classes of every Kubernetes object.
RUN rm -r /opt/lastcall/lib/python3*/site-packages/kubernetes/aio \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -x '/kubernetes/client/(api|models)/' \
        /opt/lastcall/lib

FROM ${BASE}
# The compiler: the largest layer by far, and the one that changes least.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bpftool libbpf1 python3-bpfcc \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/apt /var/log/dpkg.log \
        /usr/share/doc /usr/share/man
COPY --from=build /opt/lastcall /opt/lastcall
ENV PATH=/opt/lastcall/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
EXPOSE 9435
ENTRYPOINT ["agent"]
CMD ["run"]
