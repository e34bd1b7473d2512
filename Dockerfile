# The image of Penstock. docs/how-to/kubernetes.md has the commands and the sizes.
#
#   docker build -t penstock .                               light: the core and Redis; no torch, no litellm
#   docker build -t penstock:full --build-arg EXTRAS=all .   everything: other providers, a larger model, tokenizers
#
# For a release pin the base by digest: --build-arg PYTHON=3.11.14-slim-bookworm@sha256:...
ARG PYTHON=3.11.14-slim-bookworm

# --- what Penstock needs: its own stage and layer, because it is large and seldom changes
FROM docker.io/library/python:${PYTHON} AS libraries
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
# pip lives beside the environment, not in it: the image has no installer of packages in its path
RUN python -m venv /opt/pip && python -m venv --without-pip /opt/penstock
COPY constraints.txt constraints.hashes.txt pyproject.toml .ci/needed.py ./
# Extras of pyproject.toml, separated by commas. Only semantic, and all, need an index beside the ordinary one.
ARG EXTRAS=redis
# The index of torch's builds without CUDA. Nothing else is taken from there.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# The SHA-256 of its wheel, which is not in constraints.hashes.txt: there it is the build for CUDA. Empty: not checked.
ARG TORCH_SHA256=
# Torch's CPU build is asked for by its full name: should that index fail, the build fails too, and does not take the
# build for CUDA with its several gigabytes from elsewhere.
RUN sed -i -E 's/^(torch==[^+]+)$/\1+cpu/' constraints.txt \
    && sed -n "s/^torch==.*/&${TORCH_SHA256:+ --hash=sha256:${TORCH_SHA256}}/p" constraints.txt > torch.txt \
    && case ",${EXTRAS}," in *,all,*|*,semantic,*) \
         /opt/pip/bin/pip --python /opt/penstock/bin/python install --no-deps --index-url "${TORCH_INDEX}" \
           -r torch.txt ;; \
       esac
# All the rest has the hashes of constraints.hashes.txt, or the build fails.
RUN python needed.py "${EXTRAS}" /opt/pip/bin/pip --python /opt/penstock/bin/python > needed.txt \
    && /opt/pip/bin/pip --python /opt/penstock/bin/python install --no-deps --only-binary :all: --require-hashes \
         -r needed.txt

# --- Penstock itself: less than 15 MB, and all that a new version changes
FROM libraries AS program
WORKDIR /program
COPY . .
# what builds it has its hash, too
RUN sed -n '/^setuptools==/,/[^\\]$/p' constraints.hashes.txt > setuptools.txt \
    && /opt/pip/bin/pip install --no-deps --require-hashes -r setuptools.txt \
    && /opt/pip/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/pip/bin/pip --python /opt/penstock/bin/python install --no-deps --no-index --prefix /installed /wheels/*.whl

# --- the image
FROM docker.io/library/python:${PYTHON}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Penstock" \
      org.opencontainers.image.description="A transparent LLM proxy that engineers the context of each request" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# the user has a name, because some libraries look theirs up
RUN groupadd --gid 65532 penstock \
    && useradd --uid 65532 --key UID_MAX=65532 --gid 65532 --no-create-home --home-dir /var/lib/penstock \
         --shell /usr/sbin/nologin penstock \
    && install --directory --mode 0700 --owner 65532 --group 65532 /var/lib/penstock
COPY --from=libraries /opt/penstock /opt/penstock
COPY --from=program /installed /opt/penstock
COPY config.yaml /etc/penstock/config.yaml
# HF_HUB_OFFLINE: nothing is looked up or downloaded at run time; the weights are in the image.
ENV PATH=/opt/penstock/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HUB_OFFLINE=1 \
    PENSTOCK_HOST=0.0.0.0 \
    PENSTOCK_PORT=4000 \
    PENSTOCK_WARM=true
# The root file system may be read-only. Written are only the state, here, and /tmp.
WORKDIR /var/lib/penstock
VOLUME /var/lib/penstock
USER 65532:65532
EXPOSE 4000
# Liveness: it depends on no upstream. PENSTOCK_PORT must be the port of the configuration.
HEALTHCHECK --interval=15s --timeout=3s --start-period=30s --retries=3 CMD ["python", "-I", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['PENSTOCK_PORT']), timeout=2); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["penstock"]
CMD ["serve", "--config", "/etc/penstock/config.yaml"]
