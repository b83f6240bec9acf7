/* Reading a connection and its TCP header out of a packet or a socket. */

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

struct lc_segment {
    struct lc_connection connection;
    u32 sequence;
    u32 payload;
    u8 flags;
};

INLINE struct lc_address address_from_v4(u32 network_order) {
    struct lc_address address = {};

    address.low = bpf_htonll(0xffff00000000ULL | bpf_ntohl(network_order));
    return address;
}

INLINE bool same_address(struct lc_address *a, struct lc_address *b) {
    return a->high == b->high && a->low == b->low;
}

/* The segment at an IP header, which arrives at the pod. Fails when it is not TCP. */
INLINE bool read_segment_at(unsigned char *ip, struct lc_segment *segment) {
    unsigned char *tcp;
    u8 first = 0, protocol = 0, offset = 0;
    u16 length = 0, port = 0;

    bpf_probe_read_kernel(&first, sizeof(first), ip);
    if (first >> 4 == 4) {
        u32 word = 0;

        bpf_probe_read_kernel(&protocol, sizeof(protocol), ip + 9);
        if (protocol != 6)
            return false;
        bpf_probe_read_kernel(&word, sizeof(word), ip + 12);
        segment->connection.remote = address_from_v4(word);
        bpf_probe_read_kernel(&word, sizeof(word), ip + 16);
        segment->connection.local = address_from_v4(word);
        bpf_probe_read_kernel(&length, sizeof(length), ip + 2);
        length = bpf_ntohs(length) - (first & 15) * 4;
        tcp = ip + (first & 15) * 4;
    } else if (first >> 4 == 6) {
        bpf_probe_read_kernel(&protocol, sizeof(protocol), ip + 6);
        if (protocol != 6)
            return false;
        bpf_probe_read_kernel(&segment->connection.remote, 16, ip + 8);
        bpf_probe_read_kernel(&segment->connection.local, 16, ip + 24);
        bpf_probe_read_kernel(&length, sizeof(length), ip + 4);
        length = bpf_ntohs(length);
        tcp = ip + 40;
    } else {
        return false;
    }
    bpf_probe_read_kernel(&port, sizeof(port), tcp);
    segment->connection.remote_port = bpf_ntohs(port);
    bpf_probe_read_kernel(&port, sizeof(port), tcp + 2);
    segment->connection.local_port = bpf_ntohs(port);
    bpf_probe_read_kernel(&segment->sequence, sizeof(u32), tcp + 4);
    segment->sequence = bpf_ntohl(segment->sequence);
    bpf_probe_read_kernel(&offset, sizeof(offset), tcp + 12);
    bpf_probe_read_kernel(&segment->flags, sizeof(u8), tcp + 13);
    offset = (offset >> 4) * 4;
    segment->payload = length > offset ? length - offset : 0;
    return true;
}

INLINE bool read_segment(struct sk_buff *skb, struct lc_segment *segment) {
    return read_segment_at(READ(skb, head) + READ(skb, network_header), segment);
}

/* Both addresses of a socket, whose owner is `local`. */
INLINE void read_socket(struct sock *sk, struct lc_connection *connection) {
    if (READ(sk, __sk_common.skc_family) == 2) { /* AF_INET */
        connection->local = address_from_v4(READ(sk, __sk_common.skc_rcv_saddr));
        connection->remote = address_from_v4(READ(sk, __sk_common.skc_daddr));
    } else {
        bpf_probe_read_kernel(&connection->local, 16, ADDRESS_OF(sk, __sk_common.skc_v6_rcv_saddr));
        bpf_probe_read_kernel(&connection->remote, 16, ADDRESS_OF(sk, __sk_common.skc_v6_daddr));
    }
    /* skc_num is 0 once an accepted socket is closed; inet_sport is not. */
    connection->local_port = bpf_ntohs(READ((struct inet_sock *)sk, inet_sport));
    connection->remote_port = bpf_ntohs(READ(sk, __sk_common.skc_dport));
}

/* Traffic inside a pod: to one of its addresses from the same one, or from 127.0.0.0/8. */
INLINE bool stays_inside(struct lc_connection *connection) {
    struct lc_address *remote = &connection->remote;

    return same_address(&connection->local, remote) ||
           (remote->high == 0 && bpf_ntohll(remote->low) >> 24 == 0xffff7f);
}

INLINE bool arrives_by_loopback(struct sk_buff *skb) {
    struct net_device *device = READ(skb, dev);

    return device && (READ(device, flags) & 0x8); /* IFF_LOOPBACK, uapi/linux/if.h */
}
