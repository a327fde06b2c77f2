"""The example of the README: a join of users and orders, maintained."""

import stepping_spark as st


class User(st.Data):
    id: int
    name: str


class Order(st.Data):
    user: int
    item: str


class Line(st.Data):
    name: str
    item: str


def query(users: st.ZSet[User], orders: st.ZSet[Order]) -> st.ZSet[Line]:
    pairs = st.join(users, orders, on_left=lambda u: u.id, on_right=lambda o: o.user)
    return st.map(pairs, f=lambda p: Line(name=p.left.name, item=p.right.item))


graph = st.compile(query)
store = st.StoreMemory.from_graph(graph)
users, orders = st.actions(store, graph)

users.insert(User(id=1, name="Ann"), User(id=2, name="Bob"))
print(orders.insert(Order(user=1, item="tea"), Order(user=1, item="milk")))
print(users.replace(User(id=1, name="Ann"), User(id=1, name="Anna")))
st.write_png(graph, "join.png")
